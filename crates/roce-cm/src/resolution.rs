//! Resolution of datagram services: SIDR_REQ and SIDR_REP.

use roce_wire::management::{CommunicationId, ServiceId, SidrStatus};

use crate::addresses::DatagramAddresses;
use crate::connection::Resend;
use crate::listener::ListenerHandle;
use crate::outputs::Bytes;

/// A request for a datagram service, as its receiver tells it from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ServiceKey {
    pub(crate) addresses: DatagramAddresses,
    pub(crate) request_id: CommunicationId,
    pub(crate) transaction: u64,
}

/// State of a resolution.
#[derive(Debug)]
pub(crate) enum ResolutionState {
    /// Our request waits for the answer.
    Asked { request: Bytes, resend: Resend },
    /// The peer's request waits for our program.
    Received { key: ServiceKey, service: ServiceId, backlog_of: Option<ListenerHandle> },
    /// Answered, or given up.
    Over,
}

impl ResolutionState {
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Asked { .. } => "waiting for the peer's answer",
            Self::Received { .. } => "a request that was not answered",
            Self::Over => "answered",
        }
    }
}

/// A resolution, asked for by us or by a peer.
#[derive(Debug)]
pub(crate) struct Resolution {
    pub(crate) addresses: DatagramAddresses,
    pub(crate) traffic_class: u8,
    pub(crate) state: ResolutionState,
}

impl Resolution {
    /// Returns true for a request in the backlog of `listener`.
    pub(crate) fn is_waiting_for(&self, listener: ListenerHandle) -> bool {
        match self.state {
            ResolutionState::Received { backlog_of, .. } => backlog_of == Some(listener),
            _ => false,
        }
    }
}

/// Status of the answer for a port without listener.
pub(crate) const NO_LISTENER: SidrStatus = SidrStatus::UNSUPPORTED;
