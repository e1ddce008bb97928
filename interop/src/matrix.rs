//! The cases of the matrix.

mod direction;

use std::ffi::OsString;

use roce_verbs::Service as QpService;

use self::direction::row;
pub use self::direction::{Direction, Plan};
use super::case::Run;
pub use super::case::{Case, Verdict, run};
use super::cases::connection_management::{self, Exchange, Script};
use super::cases::generator::{self, Provocation, Responder};
use super::cases::pingpong::{self, Server, Service};
use super::cases::protection::{self, Offence};
use super::cases::{
    atomics, invalidate, killed, multicast, placement, rnr, rxe_on_same_host, shared_receives,
    sharing, transfer, unreliable, windows,
};
use super::connection::Connection;
use super::fault::expect;
use super::params::{ConnectionParams, Family, Operation, WaitMode};
use super::{Fault, World, numbering};

/// Everything there is to show with one guest.
pub fn cases(plan: &Plan) -> Vec<Case<World>> {
    let mut cases = Vec::new();
    for direction in &plan.directions {
        operations(&mut cases, *direction, plan);
        newer_operations(&mut cases, *direction, plan);
        paged_memory(&mut cases, *direction, plan);
        other_backends(&mut cases, *direction, plan, ("udp sockets", "udp"));
        other_backends(&mut cases, *direction, plan, (XDP_SOCKETS, "af-xdp"));
        without_acks(&mut cases, *direction, plan);
        groups(&mut cases, *direction, plan);
        shared_queues(&mut cases, *direction, plan);
        impairment(&mut cases, *direction, plan);
        marks(&mut cases, *direction, plan);
        refusals(&mut cases, *direction, plan);
        lent_windows(&mut cases, *direction, plan);
    }
    if plan.directions.iter().any(|direction| *direction != Direction::RxeToRxe) {
        pingpongs(&mut cases);
        connections_by_address(&mut cases);
        generated_packets(&mut cases);
        neighbours(&mut cases, plan);
    }
    // A change of the link's MTU takes a while.
    cases.sort_by_key(|case| (case.path_mtu, case.netem));
    cases
}

/// One operation with all its sizes on one connection.
fn exercise(
    connection: &mut Connection,
    operation: Operation,
    lens: &[usize],
    count: usize,
    wait_mode: WaitMode,
) -> Result<(), Fault> {
    if operation.is_atomic() {
        // One at a time, then many at once.
        atomics::run(connection, operation, 1, wait_mode)?;
        return atomics::run(connection, operation, 8 * count, wait_mode);
    }
    if operation == Operation::SendInvalidate {
        return invalidate::run(connection, lens, wait_mode).map(drop);
    }
    for len in lens {
        // Long messages alone: several would not fit into the region.
        let count = if *len > LONG { 1 } else { count };
        transfer::run(connection, operation, *len, count, wait_mode)
            .map_err(|fault| Fault::Wrong(format!("{len} bytes: {fault}")))?;
    }
    Ok(())
}

/// Both path MTUs and both protocols below, and a way to wait for each.
const COLUMNS: [(Family, usize, WaitMode); 4] = [
    (Family::V4, 1024, WaitMode::Poll),
    (Family::V6, 1024, WaitMode::Events),
    (Family::V4, 4096, WaitMode::Events),
    (Family::V6, 4096, WaitMode::Poll),
];

/// Every operation and size of UC and UD.
fn without_acks(cases: &mut Vec<Case<World>>, direction: Direction, plan: &Plan) {
    for (family, path_mtu, wait_mode) in COLUMNS {
        let datagrams = [0, 1, path_mtu - 1, path_mtu];
        let messages = [&datagrams[..], &[path_mtu + 1, 64 << 10, 1 << 20]].concat();
        for (service, group, lens) in [
            (QpService::Uc, "unreliable connection", &messages[..]),
            (QpService::Ud, "datagrams", &datagrams),
        ] {
            let settings = ConnectionParams {
                service,
                max_rate: Some(MAX_RATE),
                ..ConnectionParams::new(family, path_mtu)
            };
            let operations = Operation::ALL.into_iter();
            for operation in operations.filter(|operation| operation.exists_for(service)) {
                let (ours, lens) = (plan.ours.clone(), lens.to_vec());
                let (row, column) = (row(operation, direction), format!("{family:?} {path_mtu}"));
                cases.push(Case::new(group, row, column, path_mtu, move |world| {
                    let mut connection = direction.connect(world, settings, &ours)?;
                    unreliable::run(&mut connection, operation, &lens, wait_mode)
                }));
            }
        }
    }
}

/// Connections that librdmacm makes in the guest, and `roce_verbs::cm` here.
fn connections_by_address(cases: &mut Vec<Case<World>>) {
    let mut case = |server, row: &str, column: String, exchange: Exchange| {
        let direction = if server == Server::Theirs { "ours → rxe" } else { "rxe → ours" };
        let row = format!("{row:11} {direction}");
        cases.push(Case::new(
            "connection management",
            row,
            column,
            exchange.path_mtu,
            move |world| connection_management::run(world, server, &exchange),
        ));
    };
    for server in [Server::Theirs, Server::Ours] {
        for family in [Family::V4, Family::V6] {
            for script in Script::PLAIN {
                case(
                    server,
                    script.name(),
                    format!("{family:?}"),
                    Exchange::new(script, family, 1024),
                );
            }
            let large = Exchange::new(Script::ClientEnds, family, 4096);
            case(server, Script::ClientEnds.name(), format!("{family:?} 4096"), large);
        }
        for (column, exchange) in Exchange::crossings() {
            case(server, Script::BothEnd.name(), column.to_owned(), exchange);
        }
    }
    for (server, exchange) in [Server::Theirs, Server::Ours].into_iter().zip(Exchange::data_first())
    {
        case(server, Script::DataFirst.name(), "V4".to_owned(), exchange);
    }
    for (server, losses) in [
        (Server::Theirs, Exchange::losses_of_client()),
        (Server::Ours, Exchange::losses_of_server()),
    ] {
        for (message, exchange) in losses {
            case(server, "lost once", message.to_owned(), exchange);
        }
    }
}

/// Datagrams to a group of which the responder is a member.
fn groups(cases: &mut Vec<Case<World>>, direction: Direction, plan: &Plan) {
    for (family, path_mtu, wait_mode) in COLUMNS {
        let (ours, service) = (plan.ours.clone(), QpService::Ud);
        let settings = ConnectionParams { service, ..ConnectionParams::new(family, path_mtu) };
        let (row, column) =
            (format!("send       {}", direction.name()), format!("{family:?} {path_mtu}"));
        cases.push(Case::new("multicast", row, column, path_mtu, move |world| {
            multicast::run(&mut direction.connect(world, settings, &ours)?, wait_mode)
        }));
    }
}

/// Four queue pairs of the responder on one receive queue.
fn shared_queues(cases: &mut Vec<Case<World>>, direction: Direction, plan: &Plan) {
    for (family, path_mtu, wait_mode) in COLUMNS {
        for (service, name) in [(QpService::Rc, "RC"), (QpService::Ud, "UD")] {
            let ours = plan.ours.clone();
            let settings = ConnectionParams {
                service,
                max_rate: Some(MAX_RATE),
                ..ConnectionParams::new(family, path_mtu)
            };
            let (row, column) =
                (format!("{name} {}", direction.name()), format!("{family:?} {path_mtu}"));
            cases.push(Case::new("shared receive queue", row, column, path_mtu, move |world| {
                let (requester, responder) = direction.agents(world, &ours)?;
                shared_receives::run(requester, responder, &settings, wait_mode)
            }));
        }
    }
}

/// Every operation and size over both path MTUs and both protocols below.
fn operations(cases: &mut Vec<Case<World>>, direction: Direction, plan: &Plan) {
    for (family, path_mtu, wait_mode) in COLUMNS {
        for operation in Operation::ALL {
            let ours = plan.ours.clone();
            let settings =
                ConnectionParams { largest: LARGEST, ..ConnectionParams::new(family, path_mtu) };
            let lens = [0, 1, path_mtu - 1, path_mtu, path_mtu + 1, 64 << 10, 1 << 20, LARGEST];
            let (row, column) = (row(operation, direction), format!("{family:?} {path_mtu}"));
            cases.push(Case::new("operations", row, column, path_mtu, move |world| {
                let mut connection = direction.connect(world, settings, &ours)?;
                if operation == Operation::SendInvalidate {
                    let last = invalidate::run(&mut connection, &lens, wait_mode)?;
                    return last
                        .map_or(Ok(()), |key| invalidate::expect_dead(&mut connection, key));
                }
                exercise(&mut connection, operation, &lens, 1, wait_mode)
            }));
        }
    }
}

/// The group that needs the rights of the machine's own root.
pub const XDP_SOCKETS: &str = "af-xdp sockets";

/// Operations of each kind, where our end does not use packet sockets. UDP sockets do not tell the IPv4
/// identifications, which rxe counts; a tap hands frames of several pages to AF_XDP sockets.
fn other_backends(
    cases: &mut Vec<Case<World>>,
    direction: Direction,
    plan: &Plan,
    (group, backend): (&'static str, &str),
) {
    if direction == Direction::RxeToRxe {
        return;
    }
    let operations = [Operation::Send, Operation::Write, Operation::Read, Operation::FetchAdd];
    for (family, path_mtu, wait_mode) in COLUMNS {
        for operation in operations {
            let by_it = ["--backend", backend].map(OsString::from);
            let ours: Vec<OsString> = plan.ours.iter().cloned().chain(by_it).collect();
            let settings = ConnectionParams::new(family, path_mtu);
            let lens = [0, 1, path_mtu + 1, 64 << 10, 1 << 20];
            let (row, column) = (row(operation, direction), format!("{family:?} {path_mtu}"));
            cases.push(Case::new(group, row, column, path_mtu, move |world| {
                let mut connection = direction.connect(world, settings, &ours)?;
                exercise(&mut connection, operation, &lens, 1, wait_mode)
            }));
        }
    }
}

/// The group of the operations that not every kernel has.
pub const NEWER_OPERATIONS: &str = "newer operations";

/// ATOMIC WRITE and FLUSH, where the guest has them.
fn newer_operations(cases: &mut Vec<Case<World>>, direction: Direction, plan: &Plan) {
    let mut case = |operation,
                    column: String,
                    settings: ConnectionParams,
                    arguments: &[OsString],
                    step: fn(&mut Connection, Operation) -> Result<(), Fault>| {
        let ours: Vec<OsString> = plan.ours.iter().chain(arguments).cloned().collect();
        let settings = ConnectionParams { newer: true, ..settings };
        let row = row(operation, direction);
        cases.push(Case::new(NEWER_OPERATIONS, row, column, settings.path_mtu, move |world| {
            let (mut requester, mut responder) = direction.agents(world, &ours)?;
            for agent in [&mut requester, &mut responder] {
                placement::expect_capable(agent, operation)?;
            }
            placement::expect_postable(&mut requester, operation)?;
            let mut connection = Connection::new(requester, responder, settings)?;
            placement::expect_answered(&mut connection, operation)?;
            step(&mut connection, operation)
        }));
    };
    for operation in Operation::NEWER {
        for (family, path_mtu, _) in COLUMNS {
            let settings = ConnectionParams::new(family, path_mtu);
            case(operation, format!("{family:?} {path_mtu}"), settings, &[], placement::run);
        }
        let settings = ConnectionParams::new(Family::V4, 1024);
        case(operation, "refused".to_owned(), settings, &[], |connection, operation| {
            for offence in Offence::ALL {
                protection::run(connection, operation, offence)?;
                connection.renew()?;
            }
            Ok(())
        });
        // rxe does not answer a repeated FLUSH (rxe_resp.c: rxe_prepare_res notes no PSN of it), and
        // repeats its own ATOMIC WRITE with the address 0 (rxe_req.c: req_retry).
        if operation == Operation::AtomicWrite && direction == Direction::OursToRxe {
            let losses = ["--loss", "0.05"].map(OsString::from);
            let settings = ConnectionParams { timeout: 12, rxe_timeout: 8, ..settings };
            case(operation, "ours loses 5%".to_owned(), settings, &losses, placement::run);
        }
    }
}

/// The group of memory that not every kernel's rxe pages in.
pub const PAGED_MEMORY: &str = "on-demand paging";

/// Operations on memory of rxe that is not there before its first byte is needed.
fn paged_memory(cases: &mut Vec<Case<World>>, direction: Direction, plan: &Plan) {
    let operations = [Operation::Send, Operation::Write, Operation::Read, Operation::FetchAdd];
    for (family, path_mtu, wait_mode) in COLUMNS {
        for operation in operations {
            let ours = plan.ours.clone();
            let settings =
                ConnectionParams { rxe_pages: true, ..ConnectionParams::new(family, path_mtu) };
            let lens = [0, 1, path_mtu + 1, 64 << 10, 1 << 20];
            let (row, column) = (row(operation, direction), format!("{family:?} {path_mtu}"));
            cases.push(Case::new(PAGED_MEMORY, row, column, path_mtu, move |world| {
                let (mut requester, mut responder) = direction.agents(world, &ours)?;
                for agent in [&mut requester, &mut responder] {
                    placement::expect_paging(agent, operation)?;
                }
                let mut connection = Connection::new(requester, responder, settings)?;
                exercise(&mut connection, operation, &lens, 1, wait_mode)
            }));
        }
    }
}

/// Every operation while packets get lost, doubled and out of order.
fn impairment(cases: &mut Vec<Case<World>>, direction: Direction, plan: &Plan) {
    let ours_loses = ["--loss", "0.05"].map(OsString::from);
    for (column, netem, arguments) in [
        ("loss 1%", "loss 1%", &[][..]),
        ("twice 1%", "duplicate 1%", &[]),
        ("reordered", "delay 1ms reorder 75% 50%", &[]),
        ("ours loses 5%", "", &ours_loses),
    ] {
        if direction == Direction::RxeToRxe {
            continue; // loopback meets no netem
        }
        for operation in Operation::ALL {
            let ours: Vec<OsString> = plan.ours.iter().chain(arguments).cloned().collect();
            // Ours counts its retries; rxe's 7 stands for as many as it takes.
            let settings = ConnectionParams {
                timeout: 12,
                rxe_timeout: 8,
                ..ConnectionParams::new(Family::V4, 1024)
            };
            let lens = [0, 1, 1023, 1024, 1025, 64 << 10, 1 << 20];
            let row = row(operation, direction);
            cases.push(Case {
                netem,
                ..Case::new("impairment", row, column, 1024, move |world| {
                    let exchange = |ours: &[OsString]| {
                        let mut connection = direction.connect(world, settings, ours)?;
                        exercise(&mut connection, operation, &lens, 4, WaitMode::Poll)
                    };
                    match direction {
                        Direction::RxeToOurs => numbering::repeat_while_changed(&ours, exchange),
                        _ => exchange(&ours),
                    }
                })
            });
        }
    }
}

/// Every operation with ECT, while a fifth of the packets is marked on the way in both directions: rxe
/// reads no mark and drops the CNPs that answer those of its own packets.
fn marks(cases: &mut Vec<Case<World>>, direction: Direction, plan: &Plan) {
    if direction == Direction::RxeToRxe {
        return; // our end marks
    }
    for operation in Operation::ALL {
        let marking = ["--mark", "0.2"].map(OsString::from);
        let ours: Vec<OsString> = plan.ours.iter().cloned().chain(marking).collect();
        let settings =
            ConnectionParams { traffic_class: 2, ..ConnectionParams::new(Family::V4, 1024) };
        let lens = [0, 1, 1024, 64 << 10, 1 << 20];
        let row = row(operation, direction);
        cases.push(Case::new("impairment", row, "marked", 1024, move |world| {
            let mut connection = direction.connect(world, settings, &ours)?;
            exercise(&mut connection, operation, &lens, 4, WaitMode::Poll)?;
            if operation.is_atomic() {
                return Ok(()); // too few packets
            }
            let gets_data = (direction == Direction::RxeToOurs) != (operation == Operation::Read);
            let end = match direction {
                Direction::OursToRxe => &mut connection.requester,
                _ => &mut connection.responder,
            };
            let name = if gets_data { "np_cnp_sent" } else { "fault_sent_marked" };
            expect(end.agent.counter(name)? > 0, || format!("{name} is 0"))
        }));
    }
}

/// What a responder must refuse or put off, and a requester must give up.
fn refusals(cases: &mut Vec<Case<World>>, direction: Direction, plan: &Plan) {
    let mut case = |group, row: String, column: &str, settings, run: Step| {
        let ours = plan.ours.clone();
        cases.push(Case::new(group, row, column, 1024, move |world| {
            run(direction.connect(world, settings, &ours)?)
        }));
    };
    let settings = ConnectionParams::new(Family::V4, 1024);
    for operation in Operation::ALL {
        let row = || row(operation, direction);
        if operation.takes_receive() && operation != Operation::SendInvalidate {
            let budget = ConnectionParams { rnr_retry: 2, min_rnr_timer: 22, ..settings };
            let recover: Step = Box::new(move |mut it| rnr::recover(&mut it, operation));
            let give_up: Step = Box::new(move |mut it| rnr::give_up(&mut it, operation));
            case("no receive", row(), "posted late", settings, recover);
            case("no receive", row(), "never posted", budget, give_up);
        }
        if !operation.is_send() {
            for offence in Offence::ALL {
                let step: Step =
                    Box::new(move |mut it| protection::run(&mut it, operation, offence));
                case("refused", row(), offence.name(), settings, step);
            }
        }
        // rxe on both sides is one kernel, too busy with itself to notice the order to kill.
        let apart = direction != Direction::RxeToRxe;
        if apart && matches!(operation, Operation::Write | Operation::Read) {
            let budget = ConnectionParams { retry: 6, ..settings };
            let step: Step = Box::new(move |it| killed::run(it, operation));
            case("peer killed", row(), "in the middle", budget, step);
        }
    }
}

/// Windows of both types, and each way in which their right ends.
fn lent_windows(cases: &mut Vec<Case<World>>, direction: Direction, plan: &Plan) {
    for window_type in [1, 2] {
        for end in windows::End::of_type(window_type) {
            for (family, path_mtu, _) in [COLUMNS[0], COLUMNS[3]] {
                let ours = plan.ours.clone();
                let (row, column) = (
                    format!("type {window_type} {}", direction.name()),
                    format!("{} {family:?}", end.name()),
                );
                cases.push(Case::new("windows", row, column, path_mtu, move |world| {
                    let settings = ConnectionParams::new(family, path_mtu);
                    let mut connection = direction.connect(world, settings, &ours)?;
                    windows::run(&mut connection, window_type, *end)
                }));
            }
        }
    }
}

/// What is done with a connection.
type Step = Box<dyn Fn(Connection) -> Result<(), Fault>>;

/// The stock programs against ours.
fn pingpongs(cases: &mut Vec<Case<World>>) {
    for service in Service::ALL {
        let program = format!("ibv_{}_pingpong", service.name());
        for (server, row) in [
            (Server::Theirs, format!("roce → {program}")),
            (Server::Ours, format!("{program} → roce")),
        ] {
            for (wait_mode, column) in [(WaitMode::Poll, "polling"), (WaitMode::Events, "events")] {
                let row = row.clone();
                // Datagrams of 2048 bytes are one packet each.
                let path_mtu = if service == Service::Ud { 4096 } else { 1024 };
                cases.push(Case::new("pingpong", row, column, path_mtu, move |world| {
                    pingpong::run(world, service, server, wait_mode)
                }));
            }
        }
    }
}

/// Scripts of `roce send`.
fn generated_packets(cases: &mut Vec<Case<World>>) {
    for provocation in Provocation::ALL {
        for (responder, column) in
            [(Responder::Rxe, "rxe has the fault"), (Responder::Ours, "ours is right")]
        {
            let row = provocation.name();
            cases.push(Case::new("packet generator", row, column, 1024, move |world| {
                generator::run(world, provocation, responder)
            }));
        }
    }
}

/// The largest message of the matrix: what rxe says it can.
const LARGEST: usize = 8 << 20;

/// Static rate of our UC and UD queue pairs in bytes per second, which the guest keeps up with.
const MAX_RATE: u64 = 50_000_000;

/// Several programs on one machine.
fn neighbours(cases: &mut Vec<Case<World>>, plan: &Plan) {
    let mut case = |row: &str, column: &str, run: Run<World>| {
        cases.push(Case::new("side by side", row, column, 4096, run));
    };
    let settings = ConnectionParams::new(Family::V4, 4096);
    for operation in [Operation::Send, Operation::Write, Operation::Read, Operation::FetchAdd] {
        let ours = plan.ours.clone();
        let run = move |world: &World| {
            let connect = |direction: Direction| direction.connect(world, settings, &ours);
            let connections = [connect(Direction::OursToRxe)?, connect(Direction::RxeToOurs)?];
            sharing::run(connections, operation)
        };
        case("two processes ↔ rxe", operation.name(), Box::new(run));
    }
    case("roce beside rxe", "refuses", Box::new(rxe_on_same_host::run));
}

/// Messages above this are sent alone.
const LONG: usize = 64 << 10;
