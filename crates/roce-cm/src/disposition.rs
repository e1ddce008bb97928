//! What became of a datagram.

use crate::counters::DropReason;

/// What became of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// It changed the state of the agent, or was answered.
    Handled,
    /// It may be for another agent that receives the same datagrams: a request to a port without
    /// listener here, or a DREQ with another prefix. If no other agent takes it, pass it to
    /// [`Agent::answer_stray`](crate::Agent::answer_stray). At most [`MAX_STRAYS_AT_ONCE`] at a time and one
    /// for each [`STRAY_INTERVAL`] are passed on so.
    ///
    /// [`MAX_STRAYS_AT_ONCE`]: crate::MAX_STRAYS_AT_ONCE
    /// [`STRAY_INTERVAL`]: crate::STRAY_INTERVAL
    Stray,
    /// As `Stray`, but too many came before it: [`Agent::poll_stray`](crate::Agent::poll_stray) returns it
    /// when its turn comes. At most [`MAX_STRAYS_HELD`](crate::MAX_STRAYS_HELD) wait so.
    HeldStray,
    /// It has another prefix, and is no DREQ: it may be for another agent, and no agent answers it.
    Foreign,
    /// It had no effect.
    Dropped(DropReason),
}

impl From<DropReason> for Disposition {
    fn from(reason: DropReason) -> Self {
        Self::Dropped(reason)
    }
}
