//! Two queue pairs that know each other, and the work one posts to them.

use roce_simnet::Connection;
use roce_transport::{
    AccessFlags, AckTimeout, Completion, CompletionStatus, CqHandle, Destination, ModifyError,
    PostError, QpAttributes, QpCap, QpState, RecvWr, SendWr, SgList, Sge,
};
use roce_wire::{PathMtu, Psn, Qpn, RnrTimer, Service};

use super::world::World;

pub(crate) use roce_simnet::{ConnectOptions as Options, PD};
pub(crate) const SEND_CQ: CqHandle = CqHandle(10);
pub(crate) const RECV_CQ: CqHandle = CqHandle(11);
/// So near the end of the circle that every test crosses it.
pub(crate) const FIRST_PSN: u32 = 0x00ff_fffe;

/// What both ends of most connections agree on, more or less.
pub(crate) const DEFAULT: Options = Options {
    service: Service::Rc,
    q_key: 0x1111_1111,
    srq: None,
    max_rate: None,
    path_mtu: PathMtu::B256,
    first_psn: [Psn::wrapping(FIRST_PSN), Psn::wrapping(FIRST_PSN - 1)],
    ack_timeout: timeout(8), // about a millisecond
    retry_count: 7,
    rnr_retry: 7,
    min_rnr_timer: rnr_timer(1), // 10 µs
    max_rd_atomic: 4,
    max_dest_rd_atomic: 4,
    access: AccessFlags::ALL,
    cap: QpCap {
        max_send_wr: 256,
        max_recv_wr: 256,
        max_send_sge: 32,
        max_recv_sge: 32,
        max_inline: 256,
    },
    signal_all: true,
    gap_reports: false,
};

/// The same for another service.
pub(crate) const fn of_service(service: Service) -> Options {
    Options { service, ..DEFAULT }
}

/// A local ACK timeout of 4.096 µs · 2^exponent.
pub(crate) const fn timeout(exponent: u8) -> AckTimeout {
    AckTimeout::new(exponent).expect("5 bits")
}

pub(crate) const fn rnr_timer(code: u8) -> RnrTimer {
    RnrTimer::new(code).expect("5 bits")
}

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) node: usize,
    pub(crate) qpn: Qpn,
}

/// Makes a queue pair on each node and brings both to RTS.
pub(crate) fn connect(world: &mut World, nodes: [usize; 2], options: Options) -> [End; 2] {
    connect_each(world, nodes, [options; 2])
}

/// The same, where the two ends do not agree on everything.
pub(crate) fn connect_each(
    world: &mut World,
    nodes: [usize; 2],
    options: [Options; 2],
) -> [End; 2] {
    // Numbers that differ in every byte, so that a swap is noticed.
    let taken = |world: &World, node: usize| {
        (0..)
            .map(|n: u32| (0x12_0305 + 0x01_0101 * n + 0x11 * node as u32) & 0xff_ffff)
            .map(|raw| Qpn::new(raw).expect("24 bits"))
            .find(|qpn| world.hosts[node].endpoint.query_qp(*qpn).is_none())
            .expect("a free number")
    };
    let ends = [0, 1].map(|i| {
        let end = End { node: nodes[i], qpn: taken(world, nodes[i]) };
        create(world, end.node, end.qpn, &options[i]);
        end
    });
    (0..2).for_each(|i| bring_up(world, ends, i, options[i], &TO_RTS));
    ends
}

impl End {
    /// Posts a send; fails the test when it is refused.
    #[track_caller]
    pub(crate) fn post_send(self, world: &mut World, work: SendWr) {
        self.try_post_send(world, work).expect("the work is taken");
    }

    pub(crate) fn try_post_send(self, world: &mut World, work: SendWr) -> Result<(), PostError> {
        world.with(self.node, |node, now| node.endpoint.post_send(now, self.qpn, work))
    }

    /// Posts a receive of one piece; fails the test when it is refused.
    #[track_caller]
    pub(crate) fn post_recv(self, world: &mut World, wr_id: u64, pieces: &[Sge]) {
        let work = RecvWr { wr_id, sg_list: SgList::from(pieces) };
        world
            .with(self.node, |node, now| node.endpoint.post_recv(now, self.qpn, work))
            .expect("the work is taken");
    }

    /// Where this queue pair is reached by datagrams of `from`'s node.
    pub(crate) fn destination(self, world: &World, from: Self, options: &Options) -> Destination {
        connection([from, self], *options).destination(world, 0)
    }

    /// Posts a datagram.
    pub(crate) fn try_post_send_to(
        self,
        world: &mut World,
        work: SendWr,
        to: Destination,
    ) -> Result<(), PostError> {
        world.with(self.node, |node, now| node.endpoint.post_send_to(now, self.qpn, work, to))
    }

    /// Posts to the queue pair of any service; to `peer` if it is one of datagrams.
    pub(crate) fn try_post_to_peer(
        self,
        world: &mut World,
        work: SendWr,
        peer: Self,
        options: &Options,
    ) -> Result<(), PostError> {
        match options.service {
            Service::Ud => {
                let to = peer.destination(world, self, options);
                self.try_post_send_to(world, work, to)
            }
            _ => self.try_post_send(world, work),
        }
    }

    pub(crate) fn modify(
        self,
        world: &mut World,
        attributes: &QpAttributes,
    ) -> Result<(), ModifyError> {
        world.with(self.node, |node, now| node.endpoint.modify_qp(now, self.qpn, attributes))
    }

    /// Moves the queue pair to `state`, with no other attribute.
    #[track_caller]
    pub(crate) fn move_to(self, world: &mut World, state: QpState) {
        let attributes = QpAttributes { state: Some(state), ..QpAttributes::default() };
        self.modify(world, &attributes).expect("a transition without further attributes");
    }

    pub(crate) fn state(self, world: &World) -> QpState {
        world.hosts[self.node].endpoint.query_qp(self.qpn).expect("the queue pair is there").state
    }

    /// Completions of this queue pair's sends so far.
    pub(crate) fn sent(self, world: &World) -> Vec<Completion> {
        self.completions(world, SEND_CQ)
    }

    /// Completions of this queue pair's receives so far.
    pub(crate) fn received(self, world: &World) -> Vec<Completion> {
        self.completions(world, RECV_CQ)
    }

    fn completions(self, world: &World, cq: CqHandle) -> Vec<Completion> {
        let all = world.hosts[self.node].completions.iter();
        all.filter(|(of, it)| *of == cq && it.qpn == self.qpn).map(|(_, it)| *it).collect()
    }

    /// Work identifiers and statuses of the sends completed so far.
    pub(crate) fn outcomes(self, world: &World) -> Vec<(u64, CompletionStatus)> {
        self.sent(world).iter().map(|it| (it.wr_id, it.status)).collect()
    }

    /// The endpoint's counter of this name.
    #[track_caller]
    pub(crate) fn counter(self, world: &World, name: &str) -> u64 {
        world.counter(self.node, name)
    }
}

/// One queue pair that is its own peer.
pub(crate) fn connect_to_itself(world: &mut World, options: Options) -> End {
    let end = End { node: 0, qpn: Qpn::new(0x77).expect("24 bits") };
    create(world, 0, end.qpn, &options);
    let options = Options { first_psn: [DEFAULT.first_psn[0]; 2], ..options };
    bring_up(world, [end; 2], 0, options, &TO_RTS);
    end
}

/// Connects two queue pairs that are in RESET.
pub(crate) fn reconnect(world: &mut World, ends: [End; 2], options: Options) {
    (0..2).for_each(|i| bring_up(world, ends, i, options, &TO_RTS));
}

/// Brings the second queue pair, which is in RESET, to RTR only.
pub(crate) fn receive_only(world: &mut World, ends: [End; 2], options: Options) {
    bring_up(world, ends, 1, options, &TO_RTS[..2]);
}

/// States on the way from RESET.
const TO_RTS: [QpState; 3] = [QpState::Init, QpState::ReadyToReceive, QpState::ReadyToSend];

/// A queue pair in RESET.
pub(crate) fn create(world: &mut World, node: usize, qpn: Qpn, options: &Options) {
    let init = options.init(SEND_CQ, RECV_CQ);
    world.hosts[node].endpoint.create_qp(qpn, init).expect("a free number");
}

fn bring_up(world: &mut World, ends: [End; 2], side: usize, options: Options, states: &[QpState]) {
    for state in states {
        connection(ends, options).bring(world, side, *state).expect("it comes up");
    }
}

fn connection(ends: [End; 2], options: Options) -> Connection {
    let ends = ends.map(|End { node, qpn }| roce_simnet::End { host: node, qpn });
    Connection { ends, options }
}
