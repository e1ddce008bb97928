//! One message of a plan, at its sender and at its receiver.

use crate::{MemorySpan, Side};

/// A message to a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Send {
    /// Its place in the order of sends: 0, 1, …
    pub index: u64,
    /// To which neighbour.
    pub side: Side,
    /// The step of the operation.
    pub step: u32,
    /// The piece of the step's chunk.
    pub piece: u64,
    /// The lane it travels on.
    pub lane: u32,
    /// What is sent.
    pub from: MemorySpan,
    /// Where it goes at the neighbour.
    pub to: Target,
    /// The receive, by index, that must have been consumed before.
    pub after: Option<u64>,
}

/// A message from a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receive {
    /// Its place in the order of receives: 0, 1, …
    pub index: u64,
    /// From which neighbour.
    pub side: Side,
    /// The step of the operation.
    pub step: u32,
    /// The piece of the step's chunk.
    pub piece: u64,
    /// The lane it travels on.
    pub lane: u32,
    /// Its length in bytes.
    pub len: u64,
    /// Where it comes to.
    pub to: Target,
    /// What is done with it.
    pub then: OnReceive,
    /// Which send to which side, counted from 0 there, must be completed before: it reads what is
    /// overwritten now. Where that is the input, only in place.
    pub after_sent: Option<(Side, u64)>,
}

/// Where a message goes at its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Into the slot whose turn it is.
    Slot,
    /// Into the output.
    Window {
        /// The first byte's distance from the start of the output.
        offset: u64,
    },
}

/// What is done with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnReceive {
    /// Nothing: it is in place, or empty.
    Nothing,
    /// It is copied out of its slot.
    Copy {
        /// Where to.
        into: MemorySpan,
    },
    /// It is combined with what the rank has.
    Reduce {
        /// The other operand.
        own: MemorySpan,
        /// Whether that is the left one, and the message the right one.
        own_is_left: bool,
        /// Where the result goes.
        into: MemorySpan,
        /// By how much to divide the result, if at all.
        divide_by: Option<u32>,
    },
}
