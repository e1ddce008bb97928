//! Two queue pairs that know each other, and how they got there.

use roce_transport::{
    AccessFlags, AckTimeout, CqHandle, ModifyError, PathAttributes, PathHandle, QpAttributes,
    QpCap, QpInit, QpState,
};
use roce_wire::{PathMtu, Psn, Qpn, RnrTimer, Service};

use crate::world::{End, World};
use roce_simnet::{ConnectOptions, PD};

/// Where the sends of every queue pair of the lab complete.
pub const SEND_CQ: CqHandle = CqHandle(1);
/// Where its receives complete.
pub const RECV_CQ: CqHandle = CqHandle(2);

/// What both ends of a connection agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionOptions {
    /// Largest payload of a packet.
    pub path_mtu: PathMtu,
    /// PSN of the first request that each end sends; 24 bits count.
    pub first_psn: [u32; 2],
    /// Local ACK timeout: 4.096 µs · 2^this, 0 for ever.
    pub ack_timeout: AckTimeout,
    /// How often to send again after silence, 0 ..= 7.
    pub retry_count: u8,
    /// How often to try again after RNR, 0 ..= 7; 7 is for ever.
    pub rnr_retry: u8,
    /// How long a peer is asked to wait when no receive is posted.
    pub min_rnr_timer: RnrTimer,
    /// READs and atomics outstanding in either direction.
    pub max_rd_atomic: u8,
    /// Requests that fit each queue.
    pub queue_depth: u32,
}

impl Default for ConnectionOptions {
    /// MTU 1024, PSNs from 100 and 500, 131 µs, 7 retries, 10 µs of RNR wait, 4 READs, 256 deep.
    fn default() -> Self {
        Self {
            path_mtu: PathMtu::B1024,
            first_psn: [100, 500],
            ack_timeout: AckTimeout::new(5).expect("below 32"),
            retry_count: 7,
            rnr_retry: 7,
            min_rnr_timer: RnrTimer::new(1).expect("5 bits"),
            max_rd_atomic: 4,
            queue_depth: 256,
        }
    }
}

/// Two queue pairs that were made for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Either end.
    pub ends: [End; 2],
    /// What they agree on.
    pub options: ConnectionOptions,
}

impl Connection {
    /// Makes a queue pair on each of two hosts, in state RESET.
    ///
    /// # Panics
    /// When there are no such hosts, or no number is free.
    pub fn create(world: &mut World, hosts: [usize; 2], options: ConnectionOptions) -> Self {
        let init = QpInit {
            pd: PD,
            send_cq: SEND_CQ,
            recv_cq: RECV_CQ,
            cap: QpCap {
                max_send_wr: options.queue_depth,
                max_recv_wr: options.queue_depth,
                ..QpCap::default()
            },
            signal_all: false,
            service: Service::Rc,
        };
        let ends = [0, 1].map(|side| {
            let host: usize = hosts[side];
            // Numbers that tell the host: 0x11 and 0x12 on the first, 0x21 on the second, …
            let first = (host as u32 + 1) * 0x10 + 1;
            let qpn = (first..Qpn::MAX.get())
                .filter_map(Qpn::new)
                .find(|qpn| world.hosts()[host].endpoint.query_qp(*qpn).is_none())
                .expect("a number is free");
            world
                .with_engine(host, |engine, _| engine.create_qp(qpn, init))
                .expect("a free number and sound capacities");
            world.host_mut(host).queue_pairs.push(qpn);
            End { host, qpn }
        });
        Self { ends, options }
    }

    /// Makes two queue pairs and brings both to RTS.
    ///
    /// # Panics
    /// As [`create`](Self::create).
    pub fn open(world: &mut World, hosts: [usize; 2], options: ConnectionOptions) -> Self {
        let connection = Self::create(world, hosts, options);
        for side in 0..2 {
            for state in [QpState::Init, QpState::ReadyToReceive, QpState::ReadyToSend] {
                connection.bring(world, side, state).expect("the way from RESET to RTS");
            }
        }
        connection
    }

    /// Brings one end one state further, with the attributes that this takes.
    ///
    /// # Errors
    /// What the engine says, where the state is not the next one.
    pub fn bring(
        &self,
        world: &mut World,
        side: usize,
        state: QpState,
    ) -> Result<QpAttributes, ModifyError> {
        let attributes = self.attributes(world, side, state);
        let end = self.ends[side];
        world.with_engine(end.host, |engine, now| engine.modify_qp(now, end.qpn, &attributes))?;
        Ok(attributes)
    }

    fn attributes(&self, world: &World, side: usize, state: QpState) -> QpAttributes {
        let Self { ends, options } = self;
        let (mine, peer) = (ends[side], ends[1 - side]);
        let path = PathAttributes {
            handle: PathHandle(peer.host as u64),
            local: world.hosts()[mine.host].address,
            remote: world.hosts()[peer.host].address,
        };
        let options = ConnectOptions {
            path_mtu: options.path_mtu,
            sq_psn: Psn::wrapping(options.first_psn[side]),
            rq_psn: Psn::wrapping(options.first_psn[1 - side]),
            ack_timeout: options.ack_timeout,
            retry_count: options.retry_count,
            rnr_retry: options.rnr_retry,
            min_rnr_timer: options.min_rnr_timer,
            max_rd_atomic: options.max_rd_atomic,
            max_dest_rd_atomic: options.max_rd_atomic,
            access: AccessFlags::ALL,
        };
        let to = QpAttributes { state: Some(state), ..QpAttributes::default() };
        let all = options.transitions(path, peer.qpn);
        all.into_iter().find(|it| it.state == Some(state)).unwrap_or(to)
    }
}
