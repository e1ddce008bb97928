//! Events of connection management.

use std::net::IpAddr;

use roce_cm::{ConnectRequest, ConnectResponse, ServiceRequest};
use roce_wire::Qpn;
use roce_wire::management::{RejectReason, SidrStatus};

use super::id::Id;

/// What happened to an [`Id`]; as `rdma_cm_event`.
#[derive(Clone, Debug)]
pub struct Event {
    /// The identifier; that of a new connection for [`EventKind::ConnectRequest`].
    pub id: Id,
    /// The listener that a request is for.
    pub listener: Option<Id>,
    /// What happened.
    pub kind: EventKind,
}

/// What happened to an [`Id`]; as `rdma_cm_event_type`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventKind {
    /// The address of the peer was resolved.
    AddressResolved,
    /// The address of the peer cannot be resolved.
    AddressError {
        /// Number of the error.
        errno: i32,
    },
    /// The route to the peer was resolved.
    RouteResolved,
    /// A peer asks for a connection, or for a datagram service: accept or reject.
    ConnectRequest(PeerParameters),
    /// The peer has accepted: make the queue pair ready, then establish or reject.
    ConnectResponse(PeerParameters),
    /// The connection is established, or the datagram service has answered.
    Established(PeerParameters),
    /// The peer has not answered.
    Unreachable(Unreachable),
    /// The peer has refused, or has given up waiting.
    Rejected {
        /// Reason.
        reason: RejectReason,
        /// 148 bytes of the peer's program.
        private_data: Box<[u8]>,
    },
    /// The connection has ended.
    Disconnected,
    /// The identifier has joined a multicast group.
    MulticastJoin(MulticastGroup),
    /// The kernel has refused the membership of a multicast group.
    MulticastError {
        /// The program's number for the join.
        context: u64,
        /// The group.
        group: IpAddr,
        /// Number of the error.
        errno: i32,
    },
    /// No packet of the ended connection is left in the network: its queue pair may be used again.
    TimewaitExit,
}

/// Why a peer is unreachable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unreachable {
    /// It has answered no repetition.
    TimedOut,
    /// The datagram service has answered that there is none.
    Service {
        /// Status.
        status: SidrStatus,
        /// 136 bytes of the peer's program.
        private_data: Box<[u8]>,
    },
}

/// What the peer said; as `rdma_conn_param` and `rdma_ud_param` of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerParameters {
    /// The peer's queue pair.
    pub qpn: Option<Qpn>,
    /// READs and atomics that our queue pair should execute at a time.
    pub responder_resources: u8,
    /// READs and atomics that our queue pair may have outstanding.
    pub initiator_depth: u8,
    /// The peer's queue pair counts credits.
    pub flow_control: bool,
    /// Retry count.
    pub retry_count: u8,
    /// RNR retry count of our queue pair.
    pub rnr_retry_count: u8,
    /// The peer's queue pair takes receives from a shared receive queue.
    pub srq: bool,
    /// Bytes of the peer's program, of full length: 56 of a request, 180 of that for a datagram
    /// service, 196 of a response, 136 of that of a datagram service.
    pub private_data: Box<[u8]>,
    /// The queue pair of a datagram service.
    pub datagram: Option<DatagramPeer>,
}

/// A multicast group that an identifier has joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MulticastGroup {
    /// The program's number for the join.
    pub context: u64,
    /// The group as a peer: its address, [`Qpn::MULTICAST`] and the Q_Key of its members.
    pub members: DatagramPeer,
}

/// The queue pair of a datagram service, and the way there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramPeer {
    /// Number of the queue pair.
    pub qpn: Qpn,
    /// Its Q_Key.
    pub q_key: u32,
    /// Row of the own GID table to send from.
    pub gid_index: u8,
    /// The own address.
    pub local: IpAddr,
    /// The peer's address.
    pub remote: IpAddr,
    /// Traffic class.
    pub traffic_class: u8,
    /// Flow label.
    pub flow_label: u32,
    /// Hop limit.
    pub hop_limit: u8,
}

impl Event {
    /// Returns the status that rdma_cm gives with the event: a negative error number, the reason of
    /// a refusal, the status of a datagram service, or 0.
    pub fn status(&self) -> i32 {
        match &self.kind {
            EventKind::AddressError { errno } | EventKind::MulticastError { errno, .. } => -errno,
            EventKind::Unreachable(Unreachable::TimedOut) => -libc::ETIMEDOUT,
            EventKind::Unreachable(Unreachable::Service { status, .. }) => i32::from(status.0),
            EventKind::Rejected { reason, .. } => i32::from(reason.0),
            _ => 0,
        }
    }
}

impl From<ConnectRequest> for PeerParameters {
    fn from(request: ConnectRequest) -> Self {
        Self {
            qpn: Some(request.remote_qpn),
            responder_resources: request.responder_resources,
            initiator_depth: request.initiator_depth,
            flow_control: request.end_to_end_flow_control,
            retry_count: request.retry_count,
            rnr_retry_count: request.rnr_retry_count,
            srq: request.srq,
            private_data: request.private_data,
            datagram: None,
        }
    }
}

impl From<ConnectResponse> for PeerParameters {
    fn from(response: ConnectResponse) -> Self {
        Self {
            qpn: Some(response.remote_qpn),
            responder_resources: response.responder_resources,
            initiator_depth: response.initiator_depth,
            flow_control: response.end_to_end_flow_control,
            rnr_retry_count: response.rnr_retry_count,
            srq: response.srq,
            private_data: response.private_data,
            ..Self::default()
        }
    }
}

impl From<ServiceRequest> for PeerParameters {
    fn from(request: ServiceRequest) -> Self {
        Self { private_data: request.private_data, ..Self::default() }
    }
}
