//! What an agent tells the program.

use roce_wire::Qpn;
use roce_wire::management::{CommunicationId, RejectReason, SidrStatus, TransportService};

use crate::addresses::ConnectionAddresses;
use crate::listener::ListenerHandle;

/// What happened to a connection or a resolution, as `rdma_cm_event_type`.
///
/// Each comes at most once for an id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A peer asks for a connection: accept, reject or destroy it.
    ConnectRequest {
        /// Listener that the request is for.
        listener: ListenerHandle,
        /// The new connection.
        id: CommunicationId,
        /// What the peer said.
        request: Box<ConnectRequest>,
    },
    /// The peer has accepted: establish, reject or destroy the connection.
    ConnectResponse {
        /// The connection.
        id: CommunicationId,
        /// What the peer said.
        response: Box<ConnectResponse>,
    },
    /// The connection of the passive side is established.
    Established {
        /// The connection.
        id: CommunicationId,
    },
    /// The peer has refused the connection, or has given up waiting for it.
    Rejected {
        /// The connection.
        id: CommunicationId,
        /// Reason.
        reason: RejectReason,
        /// 148 bytes of the peer's program.
        private_data: Box<[u8]>,
    },
    /// The peer has not answered any repetition.
    Unreachable {
        /// The connection or resolution.
        id: CommunicationId,
    },
    /// The connection has ended. If the peer has ended it, it waits for
    /// [`disconnect`](crate::Agent::disconnect) or [`destroy`](crate::Agent::destroy).
    Disconnected {
        /// The connection.
        id: CommunicationId,
    },
    /// No packet of the ended connection is left in the network: its queue pair may be used again.
    TimewaitExit {
        /// The connection.
        id: CommunicationId,
    },
    /// A peer asks for the queue pair of a datagram service: answer or destroy it.
    ServiceRequest {
        /// Listener that the request is for.
        listener: ListenerHandle,
        /// The new resolution.
        id: CommunicationId,
        /// What the peer said.
        request: Box<ServiceRequest>,
    },
    /// A datagram service has answered.
    ServiceResponse {
        /// The resolution.
        id: CommunicationId,
        /// What the peer said.
        response: Box<ServiceResponse>,
    },
}

impl Event {
    /// Returns the connection or resolution.
    pub const fn id(&self) -> CommunicationId {
        match self {
            Self::ConnectRequest { id, .. }
            | Self::ConnectResponse { id, .. }
            | Self::Established { id }
            | Self::Rejected { id, .. }
            | Self::Unreachable { id }
            | Self::Disconnected { id }
            | Self::TimewaitExit { id }
            | Self::ServiceRequest { id, .. }
            | Self::ServiceResponse { id, .. } => *id,
        }
    }
}

/// What the active side of a connection said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectRequest {
    /// Addresses and ports of both ends.
    pub addresses: ConnectionAddresses,
    /// Service of the queue pairs.
    pub transport_service: TransportService,
    /// The peer's queue pair.
    pub remote_qpn: Qpn,
    /// READs and atomics that our queue pair should execute at a time: the peer's initiator depth.
    pub responder_resources: u8,
    /// READs and atomics that our queue pair may have outstanding: the peer's responder resources.
    pub initiator_depth: u8,
    /// The peer's queue pair counts credits.
    pub end_to_end_flow_control: bool,
    /// Retry count of both queue pairs.
    pub retry_count: u8,
    /// RNR retry count of our queue pair.
    pub rnr_retry_count: u8,
    /// The peer's queue pair takes receives from a shared receive queue.
    pub srq: bool,
    /// 56 bytes of the peer's program.
    pub private_data: Box<[u8]>,
}

/// What the passive side of a connection said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectResponse {
    /// The peer's queue pair.
    pub remote_qpn: Qpn,
    /// READs and atomics that our queue pair should execute at a time: the peer's initiator depth.
    pub responder_resources: u8,
    /// READs and atomics that our queue pair may have outstanding: the peer's responder resources.
    pub initiator_depth: u8,
    /// The peer's queue pair counts credits.
    pub end_to_end_flow_control: bool,
    /// RNR retry count of our queue pair.
    pub rnr_retry_count: u8,
    /// The peer's queue pair takes receives from a shared receive queue.
    pub srq: bool,
    /// 196 bytes of the peer's program.
    pub private_data: Box<[u8]>,
}

/// What a peer said that asks for a datagram service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceRequest {
    /// Addresses and ports of both ends.
    pub addresses: ConnectionAddresses,
    /// Partition key.
    pub partition_key: u16,
    /// 180 bytes of the peer's program.
    pub private_data: Box<[u8]>,
}

/// What a datagram service said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceResponse {
    /// Whether queue pair and Q_Key are valid.
    pub status: SidrStatus,
    /// Queue pair of the service.
    pub qpn: Qpn,
    /// Its Q_Key.
    pub q_key: u32,
    /// 136 bytes of the peer's program.
    pub private_data: Box<[u8]>,
}
