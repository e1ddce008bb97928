//! Attributes of a queue pair.

use core::net::IpAddr;
use core::time::Duration;

use roce_wire::{PathMtu, Psn, Qpn, RnrTimer, Service};

use crate::value_table::value_table;
use crate::{AccessFlags, ApiMisuse, CqHandle, MAX_SGE, PathHandle, PdHandle, SrqHandle};

value_table! {
    /// State of a queue pair.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum QpState {
        /// Created.
        Reset = 0, "RESET";
        /// Receives may be posted.
        Init = 1, "INIT";
        /// Packets of the peer are executed.
        ReadyToReceive = 2, "RTR";
        /// Requests may be posted and are sent.
        ReadyToSend = 3, "RTS";
        /// Started requests are finished, no request is started.
        SendQueueDrain = 4, "SQD";
        /// Sending failed, receiving goes on: UC and UD only. What is posted is flushed.
        SendQueueError = 5, "SQE";
        /// Everything posted is flushed.
        Error = 6, "ERR";
    }
    /// The number in `ibv_qp_state`.
    code;
    /// The name in `ibv_qp_state`, without `IBV_QPS_`.
    name;
}

/// Attributes of a queue pair: those that are `Some` are set; as `ibv_qp_attr` and its mask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QpAttributes {
    /// Next state; `None` keeps the state.
    pub state: Option<QpState>,
    /// State that the caller expects.
    pub current_state: Option<QpState>,
    /// Rights of the peer.
    pub access: Option<AccessFlags>,
    /// Row of the partition table; there is one, 0.
    pub pkey_index: Option<u16>,
    /// Physical port; there is one, 1.
    pub port: Option<u8>,
    /// Path to the peer.
    pub path: Option<PathAttributes>,
    /// Largest payload of a packet, the same at both ends.
    pub path_mtu: Option<PathMtu>,
    /// The peer's queue pair.
    pub dest_qpn: Option<Qpn>,
    /// The PSN of the peer's first request.
    pub rq_psn: Option<Psn>,
    /// The PSN of the first request sent.
    pub sq_psn: Option<Psn>,
    /// READs and atomics that may be outstanding to the peer, 0..=[`MAX_RD_ATOMIC`].
    pub max_rd_atomic: Option<u8>,
    /// READs and atomics that the peer may have outstanding, 0..=[`MAX_RD_ATOMIC`].
    pub max_dest_rd_atomic: Option<u8>,
    /// Wait in the RNR NAKs sent when no receive is posted.
    pub min_rnr_timer: Option<RnrTimer>,
    /// Local ACK timeout; [`Endpoint`](crate::Endpoint#progress) says when it ends a request.
    pub ack_timeout: Option<AckTimeout>,
    /// Retransmissions after an ACK timeout or a sequence NAK, 0..=7. (7 is a number like the others;
    /// rxe takes it for "infinite".)
    pub retry_count: Option<u8>,
    /// Retransmissions after an RNR NAK, 0..=6; 7 = infinite.
    pub rnr_retry: Option<u8>,
    /// Raises [`AsyncEvent::SendQueueDrained`](crate::AsyncEvent::SendQueueDrained).
    pub sqd_notify: Option<bool>,
    /// Q_Key: a datagram queue pair takes only packets that carry it. Connections refuse it.
    pub q_key: Option<u32>,
    /// The peer is an endpoint of this crate that keeps packets, and has set this too: both report gaps
    /// with packets of no standard, beside their ACKs and NAKs. Reliable connections only; not set, every
    /// packet is the standard's. The two ends agree on it out of band: no packet can.
    pub gap_reports: Option<bool>,
}

/// The three transitions of a connection. The limits of a reliable one follow by hand, as here, or by
/// [`with_default_limits`](Self::with_default_limits); [`of_service`](Self::of_service) leaves out what a service does
/// not have.
///
/// ```
/// use roce_transport::{AccessFlags, AckTimeout, PathAttributes, PathHandle, QpAttributes, QpState};
/// use roce_wire::{PathMtu, Psn, Qpn, RnrTimer, Service};
///
/// let ([local, remote], psn) = ([[10, 0, 0, 1].into(), [10, 0, 0, 2].into()], Psn::ZERO);
/// let path = PathAttributes { handle: PathHandle(1), local, remote, max_rate: None };
/// let steps = [
///     QpAttributes::init(AccessFlags::ALL),
///     QpAttributes {
///         max_dest_rd_atomic: Some(4),
///         min_rnr_timer: Some(RnrTimer::DEFAULT),
///         ..QpAttributes::ready_to_receive(path, PathMtu::B1024, Qpn::new(0x11).unwrap(), psn)
///     },
///     QpAttributes {
///         max_rd_atomic: Some(4),
///         ack_timeout: AckTimeout::new(14),
///         retry_count: Some(7),
///         rnr_retry: Some(7),
///         ..QpAttributes::ready_to_send(psn)
///     },
/// ];
/// let of_uc = steps.map(|step| step.of_service(Service::Uc));
/// assert_eq!(of_uc[2], QpAttributes::ready_to_send(psn));
/// ```
impl QpAttributes {
    /// From RESET to INIT: a connection whose peer has these rights, on the one port and partition that there are.
    pub fn init(access: AccessFlags) -> Self {
        Self { access: Some(access), ..Self::init_of_datagrams(0) }.of_service(Service::Rc)
    }

    /// From RESET to INIT, for datagrams.
    pub fn init_of_datagrams(q_key: u32) -> Self {
        let state = Some(QpState::Init);
        Self { state, pkey_index: Some(0), port: Some(1), q_key: Some(q_key), ..Self::default() }
    }

    /// From INIT to RTR: the peer, whose first request has the PSN `rq_psn`.
    pub fn ready_to_receive(
        path: PathAttributes,
        path_mtu: PathMtu,
        dest_qpn: Qpn,
        rq_psn: Psn,
    ) -> Self {
        Self {
            state: Some(QpState::ReadyToReceive),
            path: Some(path),
            path_mtu: Some(path_mtu),
            dest_qpn: Some(dest_qpn),
            rq_psn: Some(rq_psn),
            ..Self::default()
        }
    }

    /// From RTR to RTS: the first request has the PSN `sq_psn`.
    pub fn ready_to_send(sq_psn: Psn) -> Self {
        Self { state: Some(QpState::ReadyToSend), sq_psn: Some(sq_psn), ..Self::default() }
    }

    /// Returns these with the limits that a reliable connection has to have for its next state, where they have none: 16
    /// READs and atomics in either direction, an ACK timeout of 67 ms, 7 retries, RNR retries
    /// without end, and [`RnrTimer::DEFAULT`]. Those of another transition are as they were.
    ///
    /// ```
    /// use roce_transport::QpAttributes;
    /// use roce_wire::Psn;
    ///
    /// let rts = QpAttributes::ready_to_send(Psn::ZERO);
    /// let hasty = QpAttributes { retry_count: Some(0), ..rts }.with_default_limits();
    /// assert_eq!((hasty.retry_count, hasty.rnr_retry), (Some(0), Some(7)));
    /// ```
    #[must_use]
    pub fn with_default_limits(mut self) -> Self {
        match self.state {
            Some(QpState::ReadyToReceive) => {
                self.max_dest_rd_atomic.get_or_insert(DEFAULT_RD_ATOMIC);
                self.min_rnr_timer.get_or_insert(RnrTimer::DEFAULT);
            }
            Some(QpState::ReadyToSend) => {
                self.max_rd_atomic.get_or_insert(DEFAULT_RD_ATOMIC);
                self.ack_timeout = self.ack_timeout.or(AckTimeout::new(14));
                self.retry_count.get_or_insert(7);
                self.rnr_retry.get_or_insert(7);
            }
            _ => {}
        }
        self
    }

    /// Returns these without what a queue pair of the service does not have.
    pub fn of_service(mut self, service: Service) -> Self {
        if service == Service::Ud {
            (self.access, self.path, self.path_mtu) = (None, None, None);
            (self.dest_qpn, self.rq_psn) = (None, None);
        } else {
            self.q_key = None;
        }
        if service != Service::Rc {
            (self.max_rd_atomic, self.max_dest_rd_atomic, self.min_rnr_timer) = (None, None, None);
            (self.ack_timeout, self.retry_count, self.rnr_retry) = (None, None, None);
            self.gap_reports = None;
        }
        self
    }
}

/// The path to the peer. The addresses tell the peer's packets from others; the handle names the path
/// to the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PathAttributes {
    /// The driver's name for the path.
    pub handle: PathHandle,
    /// Our own address.
    pub local: IpAddr,
    /// The peer's address.
    pub remote: IpAddr,
    /// Static rate: bytes per second from BTH to ICRC that UC and UD queue pairs send, at least 1;
    /// `None` is unlimited. A reliable connection is limited by its peer and ignores it.
    pub max_rate: Option<u64>,
}

impl PathAttributes {
    /// Returns true if the values have a meaning.
    pub(crate) fn is_sound(&self) -> bool {
        self.local.is_ipv4() == self.remote.is_ipv4() && self.max_rate != Some(0)
    }
}

/// READs and atomics in one direction of a connection that names no number.
const DEFAULT_RD_ATOMIC: u8 = 16;

/// Maximum READs and atomics that are outstanding in either direction.
pub const MAX_RD_ATOMIC: u8 = 128;

/// Local ACK timeout, as the exponent that verbs use.
///
/// ```
/// use std::time::Duration;
/// use roce_transport::AckTimeout;
/// let timeout = AckTimeout::new(14).unwrap();
/// assert_eq!(timeout.duration(), Some(Duration::from_nanos(4096 << 14))); // about 67 ms
/// assert_eq!(AckTimeout::NEVER.duration(), None);
/// assert_eq!(AckTimeout::new(32), None);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AckTimeout(u8);

impl AckTimeout {
    /// Infinite.
    pub const NEVER: Self = Self(0);

    /// 4.096 µs · 2^`exponent`; exponent 0 is infinite. `None` above 31.
    pub const fn new(exponent: u8) -> Option<Self> {
        if exponent < 32 { Some(Self(exponent)) } else { None }
    }

    /// The exponent.
    pub const fn exponent(self) -> u8 {
        self.0
    }

    /// Returns the timeout; `None` is infinite.
    pub const fn duration(self) -> Option<Duration> {
        match self.0 {
            0 => None,
            exponent => Some(Duration::from_nanos(4096 << exponent)),
        }
    }
}

/// Attributes that a queue pair is created with; as `ibv_qp_init_attr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpInit {
    /// Protection domain.
    pub pd: PdHandle,
    /// Completion queue of its send queue.
    pub send_cq: CqHandle,
    /// Completion queue of its receive queue.
    pub recv_cq: CqHandle,
    /// Capacity of its queues.
    pub cap: QpCap,
    /// Every send generates a completion, also if it is not signaled.
    pub signal_all: bool,
    /// Service.
    pub service: Service,
    /// Shared queue that its receives come from; then `cap.max_recv_wr` and `max_recv_sge` do not
    /// count.
    pub srq: Option<SrqHandle>,
    /// What its completions call its work queues.
    pub numbers: WorkQueueNumbers,
}

impl QpInit {
    /// A queue pair of the service with one completion queue and the default capacities, whose completions are those
    /// that its requests ask for.
    pub fn new(service: Service, pd: PdHandle, cq: CqHandle) -> Self {
        Self {
            pd,
            send_cq: cq,
            recv_cq: cq,
            cap: QpCap::default(),
            signal_all: false,
            service,
            srq: None,
            numbers: WorkQueueNumbers::default(),
        }
    }
}

/// Numbers that a driver gives the work queues of a queue pair, below
/// [`Retired::MAX_QUEUES`](crate::Retired::MAX_QUEUES). The endpoint copies them into completions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkQueueNumbers {
    /// That of the send queue.
    pub send: u32,
    /// That of the receive queue, which may be a shared one.
    pub receive: u32,
}

/// Capacity of a queue pair; as `ibv_qp_cap`. Queues take memory only as they fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpCap {
    /// Requests that may be outstanding in the send queue, 0..=[`MAX_WR`](Self::MAX_WR).
    pub max_send_wr: u32,
    /// Receives that may be posted, 0..=[`MAX_WR`](Self::MAX_WR).
    pub max_recv_wr: u32,
    /// SGEs of a send request, 0..=[`MAX_SGE`].
    pub max_send_sge: u32,
    /// SGEs of a receive, 0..=[`MAX_SGE`].
    pub max_recv_sge: u32,
    /// Bytes of an inline request, 0..=[`MAX_INLINE`](Self::MAX_INLINE).
    pub max_inline: u32,
}

impl QpCap {
    /// Maximum requests of one queue.
    pub const MAX_WR: u32 = 1 << 20;
    /// Maximum inline bytes of one request.
    pub const MAX_INLINE: u32 = 4096;

    /// Checks the capacities against their limits.
    pub(crate) fn validate(&self) -> Result<(), ApiMisuse> {
        for (capacity, asked, limit) in [
            ("max_send_wr", self.max_send_wr, Self::MAX_WR),
            ("max_recv_wr", self.max_recv_wr, Self::MAX_WR),
            ("max_send_sge", self.max_send_sge, MAX_SGE),
            ("max_recv_sge", self.max_recv_sge, MAX_SGE),
            ("max_inline", self.max_inline, Self::MAX_INLINE),
        ] {
            if asked > limit {
                return Err(ApiMisuse::CapacityTooLarge { capacity, asked, limit });
            }
        }
        Ok(())
    }
}

impl Default for QpCap {
    fn default() -> Self {
        Self {
            max_send_wr: 128,
            max_recv_wr: 128,
            max_send_sge: 4,
            max_recv_sge: 4,
            max_inline: 256,
        }
    }
}

/// Attributes and state of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpInfo {
    /// Attributes that it was created with.
    pub init: QpInit,
    /// State.
    pub state: QpState,
    /// Attributes set so far, `state` included. `sq_psn` and `rq_psn` are those of the next new request
    /// in either direction.
    pub attributes: QpAttributes,
    /// In state [`QpState::SendQueueDrain`]: a started request is not complete.
    pub is_draining: bool,
    /// Requests in the send queue that are not complete.
    pub sends_outstanding: u32,
    /// Receives posted and not used up.
    pub receives_posted: u32,
}

impl QpState {
    /// Returns true if the peer's requests are executed.
    pub const fn is_receiving(self) -> bool {
        matches!(
            self,
            Self::ReadyToReceive | Self::ReadyToSend | Self::SendQueueDrain | Self::SendQueueError
        )
    }

    /// Returns true if the peer's responses are handled.
    pub const fn is_sending(self) -> bool {
        matches!(self, Self::ReadyToSend | Self::SendQueueDrain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ack_timeouts_double_with_each_step() {
        assert_eq!(AckTimeout(1).duration(), Some(Duration::from_nanos(8192)));
        for exponent in 2..32 {
            let [before, this] =
                [exponent - 1, exponent].map(|it| AckTimeout(it).duration().unwrap());
            assert_eq!(this, before * 2);
        }
    }
}
