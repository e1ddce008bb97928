//! One message of a plan, at its sender and at its receiver.

use crate::{MemorySpan, Side};

/// A message to a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Send {
    /// The index in the order of sends, from 0.
    pub index: u64,
    /// The neighbour.
    pub side: Side,
    /// The step of the operation.
    pub step: u32,
    /// The piece of the step's chunk.
    pub piece: u64,
    /// The lane.
    pub lane: u32,
    /// The bytes to send.
    pub from: MemorySpan,
    /// The destination at the neighbour.
    pub to: Target,
    /// The index of the receive that must be consumed first.
    pub after: Option<u64>,
}

/// A message from a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receive {
    /// The index in the order of receives, from 0.
    pub index: u64,
    /// The neighbour.
    pub side: Side,
    /// The step of the operation.
    pub step: u32,
    /// The piece of the step's chunk.
    pub piece: u64,
    /// The lane.
    pub lane: u32,
    /// The length in bytes.
    pub len: u64,
    /// The destination at this rank.
    pub to: Target,
    /// The computation with the message.
    pub then: OnReceive,
    /// The send (its side, and its index among the sends to that side) that must complete first,
    /// since it reads the bytes that are overwritten. For the input this holds in place only.
    pub after_sent: Option<(Side, u64)>,
}

/// The destination of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The next slot.
    Slot,
    /// The output.
    Window {
        /// The offset of the first byte.
        offset: u64,
    },
}

/// The computation with a received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnReceive {
    /// None: the message is in place, or empty.
    Nothing,
    /// The message is copied out of its slot.
    Copy {
        /// The destination.
        into: MemorySpan,
    },
    /// The message is reduced with an operand of this rank.
    Reduce {
        /// This rank's operand.
        own: MemorySpan,
        /// True if `own` is the left operand.
        own_is_left: bool,
        /// The destination.
        into: MemorySpan,
        /// The divisor of the result, if any.
        divide_by: Option<u32>,
    },
}
