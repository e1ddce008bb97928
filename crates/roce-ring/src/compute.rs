//! Computations on a rank's memory, in blocks that stay in the first-level cache.

use crate::{DataType, MemoryKind, MemorySpan, ReduceOp, kernel};

/// One computation that the driver carries out, start to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compute {
    /// The step of the operation that it belongs to.
    pub step: u32,
    /// The piece of the step's chunk.
    pub piece: u64,
    /// The type of the elements.
    pub data_type: DataType,
    /// How they are combined.
    pub op: ReduceOp,
    /// What is done.
    pub work: Work,
}

/// What is done. All spans of one work are equally long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// `into` = `from`.
    Copy {
        /// What is copied.
        from: MemorySpan,
        /// Where to.
        into: MemorySpan,
    },
    /// `into` = `left` ∘ `right`, then divided.
    Reduce {
        /// The left operand.
        left: MemorySpan,
        /// The right operand.
        right: MemorySpan,
        /// Where the result goes: may be one of them.
        into: MemorySpan,
        /// By how much to divide, if at all.
        divide_by: Option<u32>,
    },
}

impl Work {
    /// Bytes of the result.
    pub const fn len(&self) -> u64 {
        match self {
            Self::Copy { into, .. } | Self::Reduce { into, .. } => into.len,
        }
    }

    /// Whether there is no result.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A rank's memory, as computations see it.
///
/// Offsets and lengths are those of a plan: they lie inside buffers as large as
/// [`buffer_bytes`](crate::Operation::buffer_bytes) and [`Geometry`](crate::Geometry) say.
pub trait RankMemory {
    /// Copies bytes of `place`, from `offset` on, into `into`.
    fn read(&mut self, memory: MemoryKind, offset: u64, into: &mut [u8]);

    /// Copies `bytes` into `place`, from `offset` on.
    fn write(&mut self, memory: MemoryKind, offset: u64, bytes: &[u8]);
}

/// The blocks that computations use; made once, so that computing allocates nothing.
#[derive(Debug)]
pub struct Workspace {
    left: Box<[u8]>,
    right: Box<[u8]>,
}

impl Workspace {
    /// Two blocks of 16 KiB.
    pub fn new() -> Self {
        let block = || vec![0; BLOCK].into_boxed_slice();
        Self { left: block(), right: block() }
    }

    /// Carries out `compute` on `places`.
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

/// Offsets and lengths of the blocks of `len` bytes.
fn blocks(len: u64) -> impl Iterator<Item = (u64, usize)> {
    (0..len).step_by(BLOCK).map(move |at| (at, (len - at).min(BLOCK as u64) as usize))
}

/// Two of these and what is read and written fit into 48 KiB of first-level cache. A multiple
/// of every element's size.
const BLOCK: usize = 16 << 10;
