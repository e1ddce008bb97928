//! Where bytes lie at a rank.

use crate::Side;

/// Memory of a rank that computations and messages use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemoryKind {
    /// The caller's input.
    Input,
    /// The caller's output: in place, it overlaps the input.
    Output,
    /// The rank's own memory for intermediate results, of
    /// [`scratch_bytes`](crate::Geometry::scratch_bytes).
    Scratch,
    /// A staging slot, into which a neighbour writes.
    Slot {
        /// Which neighbour.
        side: Side,
        /// Of which lane.
        lane: u32,
        /// Which of the lane's slots.
        index: u32,
    },
}

/// A run of bytes in one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MemorySpan {
    /// In which place.
    pub memory: MemoryKind,
    /// The first byte's distance from the start of the place.
    pub offset: u64,
    /// How many bytes.
    pub len: u64,
}

impl MemorySpan {
    /// `len` bytes of `place` from `offset` on.
    pub const fn new(memory: MemoryKind, offset: u64, len: u64) -> Self {
        Self { memory, offset, len }
    }
}
