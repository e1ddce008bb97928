//! The events that an agent's program has seen.

use std::collections::BTreeMap;

use roce_wire::management::{CommunicationId, RejectReason, SidrStatus};

use crate::Event;

/// An event, without what the peer said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    ConnectRequest,
    ConnectResponse,
    Established,
    Rejected(RejectReason),
    Unreachable,
    Disconnected,
    TimewaitExit,
    ServiceRequest,
    ServiceResponse(SidrStatus),
}

impl From<&Event> for Seen {
    fn from(event: &Event) -> Self {
        match event {
            Event::ConnectRequest { .. } => Self::ConnectRequest,
            Event::ConnectResponse { .. } => Self::ConnectResponse,
            Event::Established { .. } => Self::Established,
            Event::Rejected { reason, .. } => Self::Rejected(*reason),
            Event::Unreachable { .. } => Self::Unreachable,
            Event::Disconnected { .. } => Self::Disconnected,
            Event::TimewaitExit { .. } => Self::TimewaitExit,
            Event::ServiceRequest { .. } => Self::ServiceRequest,
            Event::ServiceResponse { response, .. } => Self::ServiceResponse(response.status),
        }
    }
}

/// The events of each connection and resolution.
#[derive(Debug, Default)]
pub(crate) struct SeenEvents(pub(crate) BTreeMap<CommunicationId, Vec<Seen>>);

impl SeenEvents {
    /// Adds an event, and checks that its kind is new for the id.
    pub(crate) fn add(&mut self, event: &Event) -> Seen {
        let seen = Seen::from(event);
        let of_id = self.0.entry(event.id()).or_default();
        let kind = std::mem::discriminant(&seen);
        let is_new = of_id.iter().all(|it| std::mem::discriminant(it) != kind);
        assert!(is_new, "{seen:?} twice for {}, after {of_id:?}", event.id());
        of_id.push(seen);
        seen
    }
}
