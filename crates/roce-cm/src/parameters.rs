//! What a program says when it listens, connects, accepts or answers.

use std::net::IpAddr;

use roce_wire::management::{CmTimeout, PortSpace, RejectReason, SidrStatus, TransportService};
use roce_wire::{DEFAULT_PARTITION_KEY, PathMtu, Qpn};

use crate::addresses::ConnectionAddresses;

/// What a listener is for.
///
/// ```
/// use roce_cm::{Agent, AgentConfig, AgentError, ListenParameters};
/// use roce_wire::management::PortSpace;
///
/// let mut agent = Agent::new(AgentConfig::new(1, 1, vec![[10, 0, 0, 1].into()]));
/// let every = ListenParameters {
///     space: PortSpace::TCP,
///     port: 7174,
///     address: "0.0.0.0".parse().unwrap(),
///     backlog: 16,
/// };
/// agent.listen(&every)?;
/// let one = ListenParameters { address: [10, 0, 0, 1].into(), ..every };
/// assert_eq!(agent.listen(&one), Err(AgentError::PortInUse(7174)));
/// # Ok::<(), AgentError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenParameters {
    /// Port space.
    pub space: PortSpace,
    /// Port, not 0.
    pub port: u16,
    /// Address that requests are for; `0.0.0.0` is every IPv4 address, `::` every address.
    pub address: IpAddr,
    /// Requests that may wait to be polled; 0 and numbers above 1024 count as 1024.
    pub backlog: u32,
}

/// What the active side says of its queue pair and of the path.
#[derive(Clone, Copy, Debug)]
pub struct ConnectParameters<'a> {
    /// Addresses and ports of both ends.
    pub addresses: ConnectionAddresses,
    /// Port space.
    pub space: PortSpace,
    /// Our queue pair.
    pub qpn: Qpn,
    /// Service of the queue pairs.
    pub transport_service: TransportService,
    /// READs and atomics that our queue pair executes at a time.
    pub responder_resources: u8,
    /// READs and atomics that our queue pair has outstanding at a time.
    pub initiator_depth: u8,
    /// Our queue pair counts credits.
    pub end_to_end_flow_control: bool,
    /// Retry count of both queue pairs, 0 ..= 7.
    pub retry_count: u8,
    /// RNR retry count of the peer's queue pair, 0 ..= 7.
    pub rnr_retry_count: u8,
    /// Our queue pair takes receives from a shared receive queue.
    pub srq: bool,
    /// Path MTU.
    pub path_mtu: PathMtu,
    /// Traffic class of the connection's packets.
    pub traffic_class: u8,
    /// ACK timeout; `None` follows from the packet life time.
    pub ack_timeout: Option<CmTimeout>,
    /// At most 56 bytes for the peer's program.
    pub private_data: &'a [u8],
}

impl ConnectParameters<'_> {
    /// Bytes of private data.
    pub const MAX_PRIVATE_DATA: usize = 56;

    /// Returns parameters for a reliable connection between TCP ports, with maximum retries and
    /// without READs and atomics.
    pub const fn new(addresses: ConnectionAddresses, qpn: Qpn) -> Self {
        Self {
            addresses,
            space: PortSpace::TCP,
            qpn,
            transport_service: TransportService::Rc,
            responder_resources: 0,
            initiator_depth: 0,
            end_to_end_flow_control: false,
            retry_count: 7,
            rnr_retry_count: 7,
            srq: false,
            path_mtu: PathMtu::B1024,
            traffic_class: 0,
            ack_timeout: None,
            private_data: &[],
        }
    }
}

/// What the passive side says of its queue pair.
#[derive(Clone, Copy, Debug)]
pub struct AcceptParameters<'a> {
    /// Our queue pair.
    pub qpn: Qpn,
    /// READs and atomics that our queue pair executes at a time.
    pub responder_resources: u8,
    /// READs and atomics that our queue pair has outstanding at a time.
    pub initiator_depth: u8,
    /// Our queue pair counts credits.
    pub end_to_end_flow_control: bool,
    /// RNR retry count of the peer's queue pair, 0 ..= 7.
    pub rnr_retry_count: u8,
    /// Our queue pair takes receives from a shared receive queue.
    pub srq: bool,
    /// At most 196 bytes for the peer's program.
    pub private_data: &'a [u8],
}

impl AcceptParameters<'_> {
    /// Bytes of private data.
    pub const MAX_PRIVATE_DATA: usize = 196;

    /// Returns parameters with maximum retries, without READs and atomics.
    pub const fn new(qpn: Qpn) -> Self {
        Self {
            qpn,
            responder_resources: 0,
            initiator_depth: 0,
            end_to_end_flow_control: false,
            rnr_retry_count: 7,
            srq: false,
            private_data: &[],
        }
    }
}

/// Why a program refuses a connection.
#[derive(Clone, Copy, Debug)]
pub struct RejectParameters<'a> {
    /// Reason.
    pub reason: RejectReason,
    /// At most 148 bytes for the peer's program.
    pub private_data: &'a [u8],
}

impl RejectParameters<'_> {
    /// Bytes of private data.
    pub const MAX_PRIVATE_DATA: usize = 148;

    /// Returns a refusal by the program, without private data.
    pub const fn new() -> Self {
        Self { reason: RejectReason::CONSUMER, private_data: &[] }
    }
}

impl Default for RejectParameters<'_> {
    fn default() -> Self {
        Self::new()
    }
}

/// What a program asks for the queue pair of a datagram service.
#[derive(Clone, Copy, Debug)]
pub struct ResolveParameters<'a> {
    /// Addresses and ports of both ends.
    pub addresses: ConnectionAddresses,
    /// Port space.
    pub space: PortSpace,
    /// Partition key.
    pub partition_key: u16,
    /// Traffic class of the request.
    pub traffic_class: u8,
    /// At most 180 bytes for the peer's program.
    pub private_data: &'a [u8],
}

impl ResolveParameters<'_> {
    /// Bytes of private data.
    pub const MAX_PRIVATE_DATA: usize = 180;

    /// Returns parameters for a UDP port of the default partition.
    pub const fn new(addresses: ConnectionAddresses) -> Self {
        Self {
            addresses,
            space: PortSpace::UDP,
            partition_key: DEFAULT_PARTITION_KEY,
            traffic_class: 0,
            private_data: &[],
        }
    }
}

/// What a datagram service answers.
#[derive(Clone, Copy, Debug)]
pub struct ServiceAnswer<'a> {
    /// Whether queue pair and Q_Key are valid.
    pub status: SidrStatus,
    /// Queue pair of the service.
    pub qpn: Qpn,
    /// Its Q_Key.
    pub q_key: u32,
    /// At most 136 bytes for the peer's program.
    pub private_data: &'a [u8],
}

/// Q_Key of the queue pairs of UDP ports.
//= rule cm-udp-q-key: include/rdma/rdma_cm.h: RDMA_UDP_QKEY
//# Queue pairs of UDP ports have the Q_Key 0x01234567.
pub const UDP_Q_KEY: u32 = 0x0123_4567;

impl ServiceAnswer<'_> {
    /// Bytes of private data.
    pub const MAX_PRIVATE_DATA: usize = 136;

    /// Returns the answer that the service has the queue pair `qpn`, with the Q_Key of UDP ports.
    pub const fn new(qpn: Qpn) -> Self {
        Self { status: SidrStatus::VALID, qpn, q_key: UDP_Q_KEY, private_data: &[] }
    }

    /// Returns the answer that the program refuses.
    pub const fn rejected() -> Self {
        Self { status: SidrStatus::REJECTED, qpn: NO_QPN, q_key: 0, private_data: &[] }
    }
}

/// The number in messages that name no queue pair.
pub(crate) const NO_QPN: Qpn = match Qpn::new(0) {
    Some(qpn) => qpn,
    None => Qpn::GSI,
};
