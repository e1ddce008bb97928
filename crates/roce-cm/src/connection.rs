//! A connection: its state, and what both ends said.

use std::time::Duration;

use roce_wire::management::{
    CmTimeout, CommunicationId, MANAGEMENT_DATAGRAM_LEN, TransportService,
};
use roce_wire::{PathMtu, Psn, Qpn};

use crate::addresses::DatagramAddresses;
use crate::duplicates::RemoteKey;
use crate::listener::ListenerHandle;
use crate::timers::wait_of;

/// Which end of a connection we are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Active,
    Passive,
}

/// State of a connection.
///
/// Active: REQ sent → REP received → established. Passive: REQ received → REP sent → established.
/// Both: → DREQ sent or received → timewait → idle.
//= rule cm-states: InfiniBand 12.9, clause not known; cm.c: cm_process_work
//# The active side sends REQ and RTU, the passive side REP. Either ends the connection with DREQ,
//# which DREP answers. Then the queue pairs are not used again for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    ReqSent,
    ReqReceived,
    RepSent,
    RepReceived,
    Established,
    DreqSent,
    DreqReceived,
    Timewait,
    /// Ended, or never established.
    Idle,
}

impl State {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::ReqSent => "waiting for the peer's answer",
            Self::ReqReceived => "a request that was not answered",
            Self::RepSent => "waiting for the peer's confirmation",
            Self::RepReceived => "accepted by the peer, but not yet by us",
            Self::Established => "established",
            Self::DreqSent => "disconnecting",
            Self::DreqReceived => "disconnected by the peer",
            Self::Timewait | Self::Idle => "ended",
        }
    }
}

/// A message that is repeated until it is answered.
#[derive(Debug)]
pub(crate) struct Resend {
    /// Time between repetitions.
    pub(crate) every: Duration,
    /// Repetitions left.
    pub(crate) left: u8,
    /// The message has left at least once.
    pub(crate) has_left: bool,
    /// An MRA has put off the next repetition.
    pub(crate) is_lengthened: bool,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) role: Role,
    pub(crate) state: State,
    pub(crate) addresses: DatagramAddresses,
    pub(crate) flow_label: u32,
    pub(crate) traffic_class: u8,
    /// Transaction of the REQ, later that of the DREQ.
    pub(crate) transaction: u64,
    /// The peer's id and GUID; known from its first message on.
    pub(crate) remote: Option<RemoteKey>,
    pub(crate) local_qpn: Qpn,
    pub(crate) remote_qpn: Option<Qpn>,
    pub(crate) transport_service: TransportService,
    /// PSN of the first request that our queue pair expects.
    pub(crate) rq_psn: Psn,
    /// PSN of the first request that the peer's queue pair expects.
    pub(crate) sq_psn: Psn,
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry_count: u8,
    pub(crate) path_mtu: PathMtu,
    pub(crate) ack_timeout: CmTimeout,
    /// Time that the peer has to answer our messages.
    pub(crate) answer_time: Duration,
    pub(crate) max_retries: u8,
    /// The last REQ, REP, RTU or DREQ.
    pub(crate) sent: Option<Box<[u8; MANAGEMENT_DATAGRAM_LEN]>>,
    pub(crate) resend: Option<Resend>,
    /// Listener whose backlog the request is in.
    pub(crate) backlog_of: Option<ListenerHandle>,
    /// The request counts as one that waits for the program's answer.
    pub(crate) is_unanswered: bool,
    /// The program has taken the event of the peer's request or response.
    pub(crate) is_reported: bool,
    /// The peer's side is known to have taken our REP.
    pub(crate) is_confirmed: bool,
    /// The program was told that the connection has ended.
    pub(crate) is_end_reported: bool,
    /// The program has taken back its response, and hears no more of the connection.
    pub(crate) is_taken_back: bool,
    /// The program has no more interest: the connection only ends its exchange with the peer.
    pub(crate) is_destroyed: bool,
}

impl Connection {
    /// Returns the peer's communication id; 0 if it is not known.
    pub(crate) fn remote_id(&self) -> CommunicationId {
        self.remote.map(|remote| remote.id).unwrap_or_default()
    }

    /// Returns how long the connection stays in timewait.
    //= rule cm-timewait: cm.c: cm_enter_timewait
    //# An ended connection is in timewait for its ACK timeout: 2048 ms with the code 19.
    pub(crate) fn timewait(&self) -> Duration {
        wait_of(self.ack_timeout)
    }
}

/// Returns the ACK timeout of a queue pair whose peer acknowledges after `delay`.
//= rule cm-ack-timeout: cm.c: cm_ack_timeout
//# The ACK timeout is twice the packet life time, doubled again if the peer's delay is as long, or
//# else the peer's delay, doubled if twice the packet life time is as long.
pub(crate) fn ack_timeout(delay: CmTimeout, packet_life_time: CmTimeout) -> CmTimeout {
    let delay = delay.code();
    let round_trip = packet_life_time.code() + 1;
    CmTimeout::from_code(if round_trip >= delay {
        round_trip + u8::from(delay >= round_trip - 1)
    } else {
        delay + u8::from(round_trip >= delay - 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    //= test cm-ack-timeout
    #[test]
    fn the_ack_timeout_covers_round_trip_and_delay() {
        let timeout = |delay, life_time| {
            ack_timeout(CmTimeout::from_code(delay), CmTimeout::from_code(life_time)).code()
        };
        assert_eq!(timeout(15, 18), 19);
        assert_eq!(timeout(18, 18), 20);
        assert_eq!(timeout(20, 18), 21);
        assert_eq!(timeout(25, 18), 25);
        assert_eq!(timeout(31, 31), 31);
        assert_eq!(timeout(0, 0), 2);
    }
}
