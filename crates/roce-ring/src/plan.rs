//! The messages that a rank sends and receives in an operation.

mod algorithm;
mod chain;
mod cursor;
mod message;
mod receives;
mod sends;
mod window_lanes;

pub use algorithm::chunk_of;
pub use message::{OnReceive, Receive, Send, Target};
pub use receives::Receives;
pub use sends::Sends;
pub use window_lanes::WindowLanes;

use crate::{
    Collective, Geometry, MemoryKind, MemorySpan, Operation, OperationError, ReduceOp, Work,
};
use algorithm::Algorithm;

/// All messages of one rank in one operation, computed lazily in constant space.
///
/// A rank's n-th send to its next rank is the next rank's n-th receive from its previous rank, and
/// vice versa.
///
/// ```
/// use roce_ring::{DataType, Geometry, Operation, Plan, ReduceOp, RingConfig};
///
/// let sum = Operation::all_reduce(DataType::F32, ReduceOp::Sum, 100_000);
/// let plan = Plan::new(&sum, &Geometry::new(0, 3, RingConfig::default()).unwrap()).unwrap();
///
/// // Four steps, and each third of the vector takes two slots.
/// assert_eq!(plan.sends().count(), 8);
/// let fourth = plan.sends().nth(3).unwrap();
/// assert_eq!((fourth.step, fourth.piece, fourth.from.len), (1, 1, 565 * 4));
/// assert_eq!(fourth.after, Some(1)); // the second receive is forwarded
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    geometry: Geometry,
    operation: Operation,
    algorithm: Algorithm,
}

/// Messages of a large all-reduce: finding the lanes of its windows takes an iteration over all
/// of them. With pieces of 128 KiB this is half a TiB.
const MAX_MESSAGES: u64 = 1 << 22;

impl Plan {
    /// Plans `operation` for `geometry`'s rank. The plan is the same in place and out of place.
    ///
    /// # Errors
    /// [`OperationError`] if the operation is impossible.
    pub fn new(operation: &Operation, geometry: &Geometry) -> Result<Self, OperationError> {
        operation.check(geometry.size())?;
        // A barrier moves nothing, whatever its count.
        let count = if operation.collective == Collective::Barrier { 0 } else { operation.count };
        let operation = &Operation { count, ..*operation };
        let algorithm = Algorithm::of(operation, geometry);
        let plan = Self { geometry: *geometry, operation: *operation, algorithm };
        let steps = u64::from(plan.steps_received());
        let messages = plan.max_pieces(0).saturating_mul(steps);
        if algorithm == Algorithm::Large && messages > MAX_MESSAGES {
            return Err(OperationError::TooManyMessages { messages, max: MAX_MESSAGES });
        }
        Ok(plan)
    }

    /// Returns the messages to the neighbours, in order.
    ///
    /// Each message, and each step without one, takes constant time.
    pub fn sends(&self) -> Sends {
        Sends::new(*self)
    }

    /// Returns the messages from the neighbours, in order, at the cost of [`sends`](Self::sends).
    pub fn receives(&self) -> Receives {
        Receives::new(*self)
    }

    /// Returns the lanes whose messages go to the output, each once, in the order of their first
    /// message. Iterating to the end may visit all messages.
    pub fn window_lanes(&self) -> WindowLanes {
        WindowLanes::new(self)
    }

    /// Returns the local copy of an out-of-place operation, if it has one.
    pub fn local_copy(&self) -> Option<Work> {
        let count = self.operation.count;
        let rank = self.geometry.rank();
        let (first, count) = match self.operation.collective {
            Collective::Barrier => return None,
            Collective::AllGather => (u64::from(rank) * count, count),
            Collective::Broadcast if rank == self.operation.root => (0, count),
            _ if self.geometry.size() == 1 => (0, count),
            _ => return None,
        };
        let into = self.span(MemoryKind::Output, first, count);
        (count > 0).then_some(Work::Copy { from: self.span(MemoryKind::Input, 0, count), into })
    }

    /// Returns true if the result depends on every rank: a rank that has the result knows that all
    /// ranks have started the operation, and so have finished the ones before.
    pub(crate) const fn is_synchronizing(&self) -> bool {
        !matches!(
            self.algorithm,
            Algorithm::Nothing | Algorithm::Broadcast { .. } | Algorithm::Reduce
        )
    }

    /// Returns the geometry of the ring.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Returns the planned operation.
    pub fn operation(&self) -> &Operation {
        &self.operation
    }

    /// Returns the length of the rank's output in bytes.
    pub(crate) fn output_bytes(&self) -> u64 {
        // The operation was checked when the plan was made.
        self.operation.buffer_bytes(&self.geometry).map_or(0, |(_, output)| output)
    }

    /// Returns the divisor of the final result, if any.
    fn divide_by(&self) -> Option<u32> {
        (self.operation.op == ReduceOp::Avg).then_some(self.geometry.size())
    }

    /// Returns the span of `count` elements of `memory` from element `first` on.
    fn span(&self, memory: MemoryKind, first: u64, count: u64) -> MemorySpan {
        let element = self.operation.data_type.size() as u64;
        MemorySpan::new(memory, first * element, count * element)
    }

    /// Returns piece `turn` of the rotation in the scratch memory.
    fn rotated(&self, turn: u64, count: u64) -> MemorySpan {
        let piece = turn % u64::from(self.geometry.slots());
        self.span(MemoryKind::Scratch, piece * self.max_piece(), count)
    }

    /// Returns the most elements of a piece.
    fn max_piece(&self) -> u64 {
        self.geometry.max_piece(self.operation.data_type.size())
    }

    /// Returns the number of pieces of `count` elements.
    fn pieces(&self, count: u64) -> u64 {
        count.div_ceil(self.max_piece())
    }
}
