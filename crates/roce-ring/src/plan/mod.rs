//! Which messages a rank sends and receives in an operation.

mod algorithm;
mod chain;
mod cursor;
mod message;
mod receives;
mod sends;
mod window_lanes;

pub use message::{OnReceive, Receive, Send, Target};
pub use receives::Receives;
pub use sends::Sends;
pub use window_lanes::WindowLanes;

use crate::{
    Collective, Geometry, MemoryKind, MemorySpan, Operation, OperationError, ReduceOp, Work,
};
use algorithm::Algorithm;

/// All messages of one rank in one operation, computed as they are asked for: a plan takes the
/// same few bytes whatever it plans.
///
/// The n-th send of a rank to its next rank is that one's n-th receive from its previous rank, and
/// the other way round.
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
/// assert_eq!(fourth.after, Some(1)); // what was received second goes on
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    geometry: Geometry,
    operation: Operation,
    algorithm: Algorithm,
}

/// The most messages of a large all-reduce: the lanes of its windows are known only to who goes
/// through all of them, which has to end soon. With pieces of 128 KiB this is half a TiB.
const MAX_MESSAGES: u64 = 1 << 22;

impl Plan {
    /// The plan of `geometry`'s rank for `operation`. It is the same in place and out of place.
    ///
    /// # Errors
    /// [`OperationError`] when there can be no such operation.
    pub fn new(operation: &Operation, geometry: &Geometry) -> Result<Self, OperationError> {
        operation.check(geometry.size())?;
        // A barrier moves nothing, whatever its caller counted.
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

    /// The messages to the neighbours, in their order.
    ///
    /// The next one costs constant time, but for steps without a message, which cost as much.
    pub fn sends(&self) -> Sends {
        Sends::new(*self)
    }

    /// The messages from the neighbours, in their order; the cost is that of sends.
    pub fn receives(&self) -> Receives {
        Receives::new(*self)
    }

    /// On which lanes messages come into the output, each once, in the order of the first of
    /// those. Who asks for all of them may go through all messages.
    pub fn window_lanes(&self) -> WindowLanes {
        WindowLanes::new(self)
    }

    /// What a rank copies by itself when input and output are different buffers.
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

    /// Whether a rank's result depends on every rank: who has it knows that all have begun, and so
    /// have finished whatever was before.
    pub(crate) const fn is_synchronizing(&self) -> bool {
        !matches!(
            self.algorithm,
            Algorithm::Nothing | Algorithm::Broadcast { .. } | Algorithm::Reduce
        )
    }

    /// The rank's place in the ring.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// What is planned.
    pub fn operation(&self) -> &Operation {
        &self.operation
    }

    /// Bytes of the rank's output.
    pub(crate) fn output_bytes(&self) -> u64 {
        // The operation was checked when the plan was made.
        self.operation.buffer_bytes(&self.geometry).map_or(0, |(_, output)| output)
    }

    /// By how much results are divided at the end.
    fn divide_by(&self) -> Option<u32> {
        (self.operation.op == ReduceOp::Avg).then_some(self.geometry.size())
    }

    /// `count` elements of a place, from element `first` on.
    fn span(&self, memory: MemoryKind, first: u64, count: u64) -> MemorySpan {
        let element = self.operation.data_type.size() as u64;
        MemorySpan::new(memory, first * element, count * element)
    }

    /// Piece `turn` of the rotation in the scratch.
    fn rotated(&self, turn: u64, count: u64) -> MemorySpan {
        let piece = turn % u64::from(self.geometry.slots());
        self.span(MemoryKind::Scratch, piece * self.max_piece(), count)
    }

    /// Elements of a piece at most.
    fn max_piece(&self) -> u64 {
        self.geometry.max_piece(self.operation.data_type.size())
    }

    /// Into how many pieces `count` elements are cut.
    fn pieces(&self, count: u64) -> u64 {
        count.div_ceil(self.max_piece())
    }
}
