//! Computations on a rank's memory, in blocks that stay in the L1 cache.

use crate::{DataType, MemoryKind, MemorySpan, ReduceOp, kernel};

/// One computation, which the driver performs to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compute {
    /// The step of the operation.
    pub step: u32,
    /// The piece of the step's chunk.
    pub piece: u64,
    /// The type of the elements.
    pub data_type: DataType,
    /// The reduction operator.
    pub op: ReduceOp,
    /// The computation itself.
    pub work: Work,
}

/// A copy or a reduction. All spans of one computation have the same length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// `into` = `from`.
    Copy {
        /// The source.
        from: MemorySpan,
        /// The destination.
        into: MemorySpan,
    },
    /// `into` = `left` ∘ `right`, divided by `divide_by`.
    Reduce {
        /// The left operand.
        left: MemorySpan,
        /// The right operand.
        right: MemorySpan,
        /// The destination: may be one of the operands.
        into: MemorySpan,
        /// The divisor of the result, if any.
        divide_by: Option<u32>,
    },
}

impl Work {
    /// Returns the length of the result in bytes.
    pub const fn len(&self) -> u64 {
        match self {
            Self::Copy { into, .. } | Self::Reduce { into, .. } => into.len,
        }
    }

    /// Returns true if the result is empty.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Access to a rank's memory for computations.
///
/// Offsets and lengths come from a plan: they lie inside buffers of the sizes that
/// [`buffer_bytes`](crate::Operation::buffer_bytes) and [`Geometry`](crate::Geometry) return.
pub trait RankMemory {
    /// Copies bytes of `memory` from `offset` on into `into`.
    fn read(&mut self, memory: MemoryKind, offset: u64, into: &mut [u8]);

    /// Copies `bytes` to `offset` of `memory`.
    fn write(&mut self, memory: MemoryKind, offset: u64, bytes: &[u8]);
}

/// The buffers of computations, allocated once: computing allocates nothing.
#[derive(Debug)]
pub struct Workspace {
    left: Box<[u8]>,
    right: Box<[u8]>,
}

impl Workspace {
    /// Allocates two blocks of 16 KiB.
    pub fn new() -> Self {
        let block = || vec![0; BLOCK].into_boxed_slice();
        Self { left: block(), right: block() }
    }

    /// Performs `compute` on `memory`.
    pub fn execute(&mut self, compute: &Compute, memory: &mut impl RankMemory) {
        let Compute { data_type, op, work, .. } = *compute;
        match work {
            Work::Copy { from, into } => {
                for (at, len) in blocks(into.len) {
                    let block = &mut self.left[..len];
                    memory.read(from.memory, from.offset + at, block);
                    memory.write(into.memory, into.offset + at, block);
                }
            }
            Work::Reduce { left, right, into, divide_by } => {
                for (at, len) in blocks(into.len) {
                    let (first, second) = (&mut self.left[..len], &mut self.right[..len]);
                    memory.read(left.memory, left.offset + at, first);
                    memory.read(right.memory, right.offset + at, second);
                    kernel::reduce(data_type, op, first, second);
                    if let Some(by) = divide_by {
                        kernel::divide(data_type, first, by);
                    }
                    memory.write(into.memory, into.offset + at, first);
                }
            }
        }
    }
}

impl Default for Workspace {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the offsets and lengths of the blocks of `len` bytes.
fn blocks(len: u64) -> impl Iterator<Item = (u64, usize)> {
    (0..len).step_by(BLOCK).map(move |at| (at, (len - at).min(BLOCK as u64) as usize))
}

/// Bytes of a block: two blocks and the memory behind one fit into 48 KiB of L1 cache. A multiple
/// of every element's size.
const BLOCK: usize = 16 << 10;
