//! What became of a datagram.

use crate::counters::DropReason;

/// What became of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// It changed the state of the agent, or was answered.
    Handled,
    /// It may be for another agent that receives the same datagrams: a request to a port without
    /// listener here, or a message with another prefix. If no other agent takes it, pass it to
    /// [`Agent::answer_stray`](crate::Agent::answer_stray).
    Stray,
    /// It had no effect.
    Dropped(DropReason),
}

impl From<DropReason> for Disposition {
    fn from(reason: DropReason) -> Self {
        Self::Dropped(reason)
    }
}
