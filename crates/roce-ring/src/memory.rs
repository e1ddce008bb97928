//! The kinds of memory of a rank, and spans of it.

use crate::Side;

/// A kind of memory that computations and messages use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemoryKind {
    /// The caller's input.
    Input,
    /// The caller's output; in-place operations overlap it with the input.
    Output,
    /// Memory for intermediate results, of
    /// [`scratch_bytes`](crate::Geometry::scratch_bytes).
    Scratch,
    /// A staging slot that a neighbour writes.
    Slot {
        /// The neighbour.
        side: Side,
        /// The lane.
        lane: u32,
        /// The index of the slot.
        index: u32,
    },
}

/// Consecutive bytes of one kind of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MemorySpan {
    /// The memory.
    pub memory: MemoryKind,
    /// The offset of the first byte.
    pub offset: u64,
    /// The length in bytes.
    pub len: u64,
}

impl MemorySpan {
    /// Returns the span of `len` bytes of `memory` from `offset` on.
    pub const fn new(memory: MemoryKind, offset: u64, len: u64) -> Self {
        Self { memory, offset, len }
    }
}
