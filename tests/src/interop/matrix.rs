//! The cells of the matrix, and running them.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use roce_guest::GuestError;

use super::cells::pingpong::{self, Server};
use super::cells::protection::{self, Offence};
use super::cells::{atomics, beside, invalidate, killed, rnr, sharing, transfer};
use super::connection::Connection;
use super::terms::{Family, Manner, Operation, Settings};
use super::{Agent, Fault, Stage, World};

/// Who requests and who responds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Our stack requests, rxe responds.
    OursToRxe,
    /// rxe requests, our stack responds.
    RxeToOurs,
    /// rxe on both sides: shows that the matrix itself is right.
    RxeToRxe,
}

impl Direction {
    const fn name(self) -> &'static str {
        match self {
            Self::OursToRxe => "ours → rxe",
            Self::RxeToOurs => "rxe → ours",
            Self::RxeToRxe => "rxe → rxe",
        }
    }

    /// Opens both ends; `ours` are arguments of our agent.
    fn connect(
        self,
        world: &World,
        settings: Settings,
        ours: &[OsString],
    ) -> Result<Connection, Fault> {
        let (requester, responder) = match self {
            Self::OursToRxe => (Agent::ours(world, ours)?, Agent::rxe(world)?),
            Self::RxeToOurs => (Agent::rxe(world)?, Agent::ours(world, ours)?),
            Self::RxeToRxe => (Agent::rxe(world)?, Agent::rxe(world)?),
        };
        Connection::new(requester, responder, settings)
    }
}

/// One thing to show, in a world of some kind.
pub struct Cell<W> {
    /// Which table it is in.
    pub group: &'static str,
    /// Its row there.
    pub row: String,
    /// Its column there.
    pub column: String,
    /// What the link must carry.
    pub(crate) path_mtu: usize,
    /// What the guests' outgoing packets suffer, in netem's words.
    pub(crate) netem: &'static str,
    pub(crate) run: Run<W>,
}

impl<W> std::fmt::Debug for Cell<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cell({})", self.name())
    }
}

impl<W> Cell<W> {
    /// Group, row and column: what `--only` looks into.
    pub fn name(&self) -> String {
        format!("{} / {} / {}", self.group, self.row, self.column)
    }
}

/// How a cell is run.
pub(crate) type Run<W> = Box<dyn Fn(&W) -> Result<(), Fault>>;

/// How a cell ended.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// Of [`Cell`].
    pub group: &'static str,
    /// Of [`Cell`].
    pub row: String,
    /// Of [`Cell`].
    pub column: String,
    /// How long it took.
    pub took: Duration,
    /// What was wrong, if it is red.
    pub fault: Option<String>,
}

impl Verdict {
    /// As [`Cell::name`].
    pub fn name(&self) -> String {
        format!("{} / {} / {}", self.group, self.row, self.column)
    }
}

/// What of the matrix is wanted.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Each operation in each of these.
    pub directions: Vec<Direction>,
    /// More arguments for our agent, such as `--pcap FILE`.
    pub ours: Vec<OsString>,
}

/// Everything there is to show with one guest.
pub fn cells(plan: &Plan) -> Vec<Cell<World>> {
    let mut cells = Vec::new();
    for direction in &plan.directions {
        operations(&mut cells, *direction, plan);
        misfortune(&mut cells, *direction, plan);
        refusals(&mut cells, *direction, plan);
    }
    if plan.directions.iter().any(|direction| *direction != Direction::RxeToRxe) {
        pingpongs(&mut cells);
        neighbours(&mut cells, plan);
    }
    // A change of the link's MTU takes a while.
    cells.sort_by_key(|cell| (cell.path_mtu, cell.netem));
    cells
}

/// Runs cells one after the other; `progress` is told of each.
///
/// # Errors
/// When the guest is gone, or link or guest can no longer be set up. What goes wrong in a cell
/// otherwise is in its verdict.
pub fn run<W: Stage>(
    world: &W,
    cells: &[Cell<W>],
    mut progress: impl FnMut(&Verdict),
) -> Result<Vec<Verdict>, Fault> {
    let mut verdicts = Vec::new();
    let (mut path_mtu, mut netem) = (0, "");
    for cell in cells {
        if cell.path_mtu != path_mtu {
            world.set_path_mtu(cell.path_mtu)?;
            path_mtu = cell.path_mtu;
        }
        if cell.netem != netem {
            world.set_netem(cell.netem)?;
            netem = cell.netem;
        }
        let started = Instant::now();
        let fault = match (cell.run)(world) {
            // Its last words are worth more than a red mark on every cell to come.
            Err(fault @ Fault::Guest(GuestError::Gone { .. })) => {
                return Err(Fault::Wrong(format!("{}: {fault}", cell.name())));
            }
            ended => ended.err().map(|fault| fault.to_string()),
        };
        let (row, column) = (cell.row.clone(), cell.column.clone());
        let verdict = Verdict { group: cell.group, row, column, took: started.elapsed(), fault };
        progress(&verdict);
        verdicts.push(verdict);
    }
    world.set_netem("")?;
    Ok(verdicts)
}

fn row(operation: Operation, direction: Direction) -> String {
    format!("{operation:10} {}", direction.name())
}

/// One operation with all its sizes on one connection.
fn exercise(
    connection: &mut Connection,
    operation: Operation,
    lens: &[usize],
    count: usize,
    manner: Manner,
) -> Result<(), Fault> {
    if operation.is_atomic() {
        // One at a time, then many at once.
        atomics::run(connection, operation, 1, manner)?;
        return atomics::run(connection, operation, 8 * count, manner);
    }
    if operation == Operation::SendInvalidate {
        return invalidate::run(connection, lens, manner).map(drop);
    }
    for len in lens {
        // Long messages alone: several would not fit into the region.
        let count = if *len > LONG { 1 } else { count };
        transfer::run(connection, operation, *len, count, manner)
            .map_err(|fault| Fault::Wrong(format!("{len} bytes: {fault}")))?;
    }
    Ok(())
}

/// Every operation and size over both path MTUs and both protocols below.
fn operations(cells: &mut Vec<Cell<World>>, direction: Direction, plan: &Plan) {
    for (family, path_mtu, manner) in [
        (Family::V4, 1024, Manner::Poll),
        (Family::V6, 1024, Manner::Events),
        (Family::V4, 4096, Manner::Events),
        (Family::V6, 4096, Manner::Poll),
    ] {
        for operation in Operation::ALL {
            let ours = plan.ours.clone();
            let settings = Settings { largest: LARGEST, ..Settings::new(family, path_mtu) };
            let lens = [0, 1, path_mtu - 1, path_mtu, path_mtu + 1, 64 << 10, 1 << 20, LARGEST];
            cells.push(Cell {
                group: "operations",
                row: row(operation, direction),
                column: format!("{family:?} {path_mtu}"),
                path_mtu,
                netem: "",
                run: Box::new(move |world| {
                    let mut connection = direction.connect(world, settings, &ours)?;
                    if operation == Operation::SendInvalidate {
                        let last = invalidate::run(&mut connection, &lens, manner)?;
                        return last
                            .map_or(Ok(()), |key| invalidate::expect_dead(&mut connection, key));
                    }
                    exercise(&mut connection, operation, &lens, 1, manner)
                }),
            });
        }
    }
}

/// Every operation while packets get lost, doubled and out of order.
fn misfortune(cells: &mut Vec<Cell<World>>, direction: Direction, plan: &Plan) {
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
            let settings =
                Settings { timeout: 12, rxe_timeout: 8, ..Settings::new(Family::V4, 1024) };
            let lens = [0, 1, 1023, 1024, 1025, 64 << 10, 1 << 20];
            cells.push(Cell {
                group: "misfortune",
                row: row(operation, direction),
                column: column.to_owned(),
                path_mtu: 1024,
                netem,
                run: Box::new(move |world| {
                    let mut connection = direction.connect(world, settings, &ours)?;
                    exercise(&mut connection, operation, &lens, 4, Manner::Poll)
                }),
            });
        }
    }
}

/// What a responder must refuse or put off, and a requester must give up.
fn refusals(cells: &mut Vec<Cell<World>>, direction: Direction, plan: &Plan) {
    let mut cell = |group, row: String, column: &str, settings, run: Step| {
        let ours = plan.ours.clone();
        cells.push(Cell {
            group,
            row,
            column: column.to_owned(),
            path_mtu: 1024,
            netem: "",
            run: Box::new(move |world| run(direction.connect(world, settings, &ours)?)),
        });
    };
    let settings = Settings::new(Family::V4, 1024);
    for operation in Operation::ALL {
        let row = || row(operation, direction);
        if operation.takes_receive() && operation != Operation::SendInvalidate {
            let budget = Settings { rnr_retry: 2, min_rnr_timer: 22, ..settings };
            let recover: Step = Box::new(move |mut it| rnr::recover(&mut it, operation));
            let give_up: Step = Box::new(move |mut it| rnr::give_up(&mut it, operation));
            cell("no receive", row(), "posted late", settings, recover);
            cell("no receive", row(), "never posted", budget, give_up);
        }
        if !operation.is_send() {
            for offence in Offence::ALL {
                let step: Step =
                    Box::new(move |mut it| protection::run(&mut it, operation, offence));
                cell("refused", row(), offence.name(), settings, step);
            }
        }
        // rxe on both sides is one kernel, too busy with itself to notice the order to kill.
        let apart = direction != Direction::RxeToRxe;
        if apart && matches!(operation, Operation::Write | Operation::Read) {
            let budget = Settings { retry: 6, ..settings };
            let step: Step = Box::new(move |it| killed::run(it, operation));
            cell("peer killed", row(), "in the middle", budget, step);
        }
    }
}

/// What is done with a connection.
type Step = Box<dyn Fn(Connection) -> Result<(), Fault>>;

/// The stock program against ours.
fn pingpongs(cells: &mut Vec<Cell<World>>) {
    for (server, row) in
        [(Server::Theirs, "roce → ibv_rc_pingpong"), (Server::Ours, "ibv_rc_pingpong → roce")]
    {
        for (manner, column) in [(Manner::Poll, "polling"), (Manner::Events, "events")] {
            cells.push(Cell {
                group: "pingpong",
                row: row.to_owned(),
                column: column.to_owned(),
                path_mtu: 1024,
                netem: "",
                run: Box::new(move |world| pingpong::run(world, server, manner)),
            });
        }
    }
}

/// The largest message of the matrix: what rxe says it can.
const LARGEST: usize = 8 << 20;

/// Several programs on one machine.
fn neighbours(cells: &mut Vec<Cell<World>>, plan: &Plan) {
    let mut cell = |row: &str, column: &str, run: Run<World>| {
        cells.push(Cell {
            group: "side by side",
            row: row.to_owned(),
            column: column.to_owned(),
            path_mtu: 4096,
            netem: "",
            run,
        });
    };
    let settings = Settings::new(Family::V4, 4096);
    for operation in [Operation::Send, Operation::Write, Operation::Read, Operation::FetchAdd] {
        let ours = plan.ours.clone();
        let run = move |world: &World| {
            let connect = |direction: Direction| direction.connect(world, settings, &ours);
            let connections = [connect(Direction::OursToRxe)?, connect(Direction::RxeToOurs)?];
            sharing::run(connections, operation)
        };
        cell("two processes ↔ rxe", operation.name(), Box::new(run));
    }
    cell("roce beside rxe", "refuses", Box::new(beside::run));
}

/// Messages above this are sent alone.
const LONG: usize = 64 << 10;
