//! Two connected queue pairs, and their way from RESET to RTS.

use crate::ConnectOptions;
use roce_transport::{
    AckTimeout, CqHandle, Destination, Memory, ModifyError, PathAttributes, PathHandle,
    QpAttributes, QpCap, QpState, SrqHandle,
};
use roce_wire::{Psn, Qpn, RnrTimer};

use crate::world::{End, World};

/// Completion queue of the sends of all queue pairs.
pub const SEND_CQ: CqHandle = CqHandle(1);
/// Completion queue of the receives of all queue pairs.
pub const RECV_CQ: CqHandle = CqHandle(2);

/// Options of the lab's connections: MTU 1024, PSNs from 100 and 500, 131 µs, 7 retries, 10 µs of RNR
/// wait, 4 READs, queues of 256 requests, Q_Key 0x2a.
pub fn default_options() -> ConnectOptions {
    ConnectOptions {
        first_psn: [100, 500].map(Psn::wrapping),
        q_key: 0x2a,
        ack_timeout: AckTimeout::new(5).expect("below 32"),
        min_rnr_timer: RnrTimer::new(1).expect("5 bits"),
        max_rd_atomic: 4,
        max_dest_rd_atomic: 4,
        cap: QpCap { max_send_wr: 256, max_recv_wr: 256, ..QpCap::default() },
        ..ConnectOptions::default()
    }
}

/// Two queue pairs that are, or will be, connected to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Both ends.
    pub ends: [End; 2],
    /// What they agree on.
    pub options: ConnectOptions,
}

impl Connection {
    /// Creates a queue pair in state RESET on each of two hosts.
    ///
    /// # Panics
    /// When there are no such hosts, or no number is free.
    pub fn create<M: Memory>(
        world: &mut World<M>,
        hosts: [usize; 2],
        options: ConnectOptions,
    ) -> Self {
        Self::create_sharing(world, hosts, options, None)
    }

    /// Creates them as [`create`](Self::create) does; the second takes its receives from `srq`.
    ///
    /// # Panics
    /// As [`create`](Self::create).
    pub fn create_sharing<M: Memory>(
        world: &mut World<M>,
        hosts: [usize; 2],
        options: ConnectOptions,
        srq: Option<SrqHandle>,
    ) -> Self {
        let ends = [0, 1].map(|side| {
            let host: usize = hosts[side];
            let own = ConnectOptions { srq: srq.filter(|_| side == 1), ..options };
            let init = own.init(SEND_CQ, RECV_CQ);
            // The first digit is the host: 0x11 and 0x12 on the first, 0x21 on the second, …
            let first = (host as u32 + 1) * 0x10 + 1;
            let qpn = (first..Qpn::MAX.get())
                .filter_map(Qpn::new)
                .find(|qpn| world.hosts[host].endpoint.query_qp(*qpn).is_none())
                .expect("a number is free");
            world
                .with(host, |host, _| host.endpoint.create_qp(qpn, init))
                .expect("a free number and sound capacities");
            world.hosts[host].queue_pairs.push(qpn);
            End { host, qpn }
        });
        Self { ends, options }
    }

    /// Creates two queue pairs and moves both to RTS.
    ///
    /// # Panics
    /// As [`create`](Self::create).
    pub fn open<M: Memory>(
        world: &mut World<M>,
        hosts: [usize; 2],
        options: ConnectOptions,
    ) -> Self {
        let connection = Self::create(world, hosts, options);
        connection.bring_up(world);
        connection
    }

    /// Moves both queue pairs from RESET to RTS.
    ///
    /// # Panics
    /// If they are not in RESET.
    pub fn bring_up<M: Memory>(&self, world: &mut World<M>) {
        for side in 0..2 {
            for state in [QpState::Init, QpState::ReadyToReceive, QpState::ReadyToSend] {
                self.bring(world, side, state).expect("the way from RESET to RTS");
            }
        }
    }

    /// Returns the destination of datagrams from one end to the other.
    pub fn destination<M: Memory>(&self, world: &World<M>, side: usize) -> Destination {
        let (path, peer) = (self.path(world, side), self.ends[1 - side]);
        let ConnectOptions { path_mtu: mtu, q_key, .. } = self.options;
        Destination { path, mtu, qpn: peer.qpn, q_key }
    }

    /// Moves one end to the next state, with the required attributes.
    ///
    /// # Errors
    /// The error of the engine if the state is not the next one.
    pub fn bring<M: Memory>(
        &self,
        world: &mut World<M>,
        side: usize,
        state: QpState,
    ) -> Result<QpAttributes, ModifyError> {
        let attributes = self.attributes(world, side, state);
        let end = self.ends[side];
        world.with(end.host, |host, now| host.endpoint.modify_qp(now, end.qpn, &attributes))?;
        Ok(attributes)
    }

    fn attributes<M: Memory>(&self, world: &World<M>, side: usize, state: QpState) -> QpAttributes {
        let Self { ends, options } = self;
        let (path, peer) = (self.path(world, side), ends[1 - side]);
        let to = QpAttributes { state: Some(state), ..QpAttributes::default() };
        let all = options.transitions(side, path, peer.qpn);
        all.into_iter().find(|it| it.state == Some(state)).unwrap_or(to)
    }

    fn path<M: Memory>(&self, world: &World<M>, side: usize) -> PathAttributes {
        let (mine, peer) = (self.ends[side], self.ends[1 - side]);
        PathAttributes {
            handle: PathHandle(peer.host as u64),
            local: world.hosts[mine.host].address,
            remote: world.hosts[peer.host].address,
            max_rate: self.options.max_rate,
        }
    }
}
