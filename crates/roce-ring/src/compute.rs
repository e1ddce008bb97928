//! Computations on a rank's memory, in blocks that stay in the first-level cache.

use crate::{DataType, Place, ReduceOp, Span, kernel};

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

/// What is done. All spans of one work but `contributions` are equally long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// `into` = `from`.
    Copy {
        /// What is copied.
        from: Span,
        /// Where to.
        into: Span,
    },
    /// `into` = `received` ∘ `own`, then divided.
    Reduce {
        /// The left operand.
        received: Span,
        /// The right operand.
        own: Span,
        /// Where the result goes: may be `own`.
        into: Span,
        /// By how much to divide, if at all.
        divide_by: Option<u32>,
    },
    /// `into` = x0 ∘ x1 ∘ …, from the left, then divided. `own` is one of the x, the others
    /// lie in `contributions`.
    Fold {
        /// Our own vector.
        own: Span,
        /// Which of the vectors it is.
        rank: u32,
        /// `size` vectors, one behind the other; the one at `rank` is not looked at.
        contributions: Span,
        /// How many vectors.
        size: u32,
        /// Where the result goes: may be `own`.
        into: Span,
        /// By how much to divide, if at all.
        divide_by: Option<u32>,
    },
}

impl Work {
    /// Bytes of the result.
    pub const fn len(&self) -> u64 {
        match self {
            Self::Copy { into, .. } | Self::Reduce { into, .. } | Self::Fold { into, .. } => {
                into.len
            }
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
pub trait Places {
    /// Copies bytes of `place`, from `offset` on, into `into`.
    fn read(&mut self, place: Place, offset: u64, into: &mut [u8]);

    /// Copies `bytes` into `place`, from `offset` on.
    fn write(&mut self, place: Place, offset: u64, bytes: &[u8]);
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
    pub fn execute(&mut self, compute: &Compute, places: &mut impl Places) {
        let Compute { data_type, op, work, .. } = *compute;
        match work {
            Work::Copy { from, into } => {
                for (at, len) in blocks(into.len) {
                    let block = &mut self.left[..len];
                    places.read(from.place, from.offset + at, block);
                    places.write(into.place, into.offset + at, block);
                }
            }
            Work::Reduce { received, own, into, divide_by } => {
                for (at, len) in blocks(into.len) {
                    let (left, right) = (&mut self.left[..len], &mut self.right[..len]);
                    places.read(received.place, received.offset + at, left);
                    places.read(own.place, own.offset + at, right);
                    kernel::reduce(data_type, op, left, right);
                    if let Some(by) = divide_by {
                        kernel::divide(data_type, left, by);
                    }
                    places.write(into.place, into.offset + at, left);
                }
            }
            Work::Fold { own, rank, contributions, size, into, divide_by } => {
                for (at, len) in blocks(into.len) {
                    let (left, right) = (&mut self.left[..len], &mut self.right[..len]);
                    for i in 0..size {
                        let block = if i == 0 { &mut *left } else { &mut *right };
                        if i == rank {
                            places.read(own.place, own.offset + at, block);
                        } else {
                            let start = contributions.offset + u64::from(i) * into.len;
                            places.read(contributions.place, start + at, block);
                        }
                        if i > 0 {
                            kernel::reduce(data_type, op, left, right);
                        }
                    }
                    if let Some(by) = divide_by {
                        kernel::divide(data_type, left, by);
                    }
                    places.write(into.place, into.offset + at, left);
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
