//! What a program says of its end of a connection.

use roce_wire::Qpn;

/// What a program says of its queue pair; as `rdma_conn_param`.
///
/// ```
/// use roce_verbs::Qpn;
/// use roce_verbs::cm::ConnectionParameters;
///
/// let qpn = Qpn::new(0x11).unwrap();
/// let parameters =
///     ConnectionParameters { private_data: b"hello", ..ConnectionParameters::new(qpn) };
/// assert_eq!((parameters.retry_count, parameters.responder_resources), (7, 16));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionParameters<'a> {
    /// The own queue pair.
    pub qpn: Qpn,
    /// READs and atomics that it executes at a time.
    pub responder_resources: u8,
    /// READs and atomics that it has outstanding at a time.
    pub initiator_depth: u8,
    /// It counts credits.
    pub flow_control: bool,
    /// Retry count of both queue pairs, 0 ..= 7; the active side's.
    pub retry_count: u8,
    /// RNR retry count of the peer's queue pair, 0 ..= 7.
    pub rnr_retry_count: u8,
    /// It takes receives from a shared receive queue.
    pub srq: bool,
    /// Q_Key of a datagram service; that of UDP ports if `None`.
    pub q_key: Option<u32>,
    /// Bytes for the peer's program: at most 56 with a request, 180 with that for a datagram
    /// service, 196 with a response, 136 with that of a datagram service.
    pub private_data: &'a [u8],
}

impl ConnectionParameters<'_> {
    /// Returns parameters with maximum retries, 16 READs and atomics and no private data.
    pub const fn new(qpn: Qpn) -> Self {
        Self {
            qpn,
            responder_resources: 16,
            initiator_depth: 16,
            flow_control: false,
            retry_count: 7,
            rnr_retry_count: 7,
            srq: false,
            q_key: None,
            private_data: &[],
        }
    }
}
