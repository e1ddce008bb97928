//! What the requester does about losses.

use crate::rc::send_state::SendPosition;
use crate::{CompletionStatus, Instant, RetransmitCause};

/// What the requester does next about a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Action {
    None,
    /// Send everything unacknowledged again, oldest first. `has_cost`: a retry was spent on it.
    GoBack {
        cause: RetransmitCause,
        has_cost: bool,
    },
    /// Send so many packets again, the oldest, and then what follows those in flight.
    Repair(u32),
    /// Send the known gaps again, each when it is due.
    RepairGaps,
    /// Wait until then: what is missing may still arrive by itself.
    Wait(Instant),
    /// Wait until then for a response to the first packet that requests one.
    WaitForResponse(Instant),
    /// Send nothing until then: the peer has no receive.
    WaitForReceive(Instant),
    /// End the request in front: no retry is left.
    GiveUp(CompletionStatus),
}

/// What an acknowledgement shows of losses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Acknowledged {
    /// The probe timeout before was due to a loss.
    pub(crate) was_lost: bool,
    /// Less is missing than is sent again: position to resume.
    pub(crate) resume: Option<SendPosition>,
    /// The next packets are missing too: how many to repair.
    pub(crate) repair: Option<u32>,
}

/// A packet that is sent again to draw a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Probe {
    Oldest,
    Last,
}
