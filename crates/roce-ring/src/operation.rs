//! One collective call.

use std::fmt;

use crate::{Collective, DataType, Geometry, ReduceOp};

/// One collective call, the same at every rank.
///
/// `count` is the count of the NCCL call, in elements: the whole vector for AllReduce, Broadcast
/// and Reduce, the part that each rank sends for AllGather and receives for ReduceScatter, 0 for
/// Barrier.
///
/// ```
/// use roce_ring::{DataType, Operation, ReduceOp};
///
/// let sum = Operation::all_reduce(DataType::F32, ReduceOp::Sum, 1);
/// assert_eq!(sum.signature(), 0x31f4);
/// assert_eq!(Operation::barrier().signature(), 0x9dec);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Operation {
    /// The collective.
    pub collective: Collective,
    /// The type of the elements.
    pub data_type: DataType,
    /// The operator; ignored by collectives that do not reduce.
    pub op: ReduceOp,
    /// The root of Broadcast and Reduce; ignored by others.
    pub root: u32,
    /// The number of elements, as described above.
    pub count: u64,
}

impl Operation {
    /// Every rank ends with the reduction of all vectors of `count` elements.
    pub const fn all_reduce(data_type: DataType, op: ReduceOp, count: u64) -> Self {
        Self { collective: Collective::AllReduce, data_type, op, root: 0, count }
    }

    /// Rank r ends with chunk r, `count` elements, of the reduction of vectors `size` times
    /// as long.
    pub const fn reduce_scatter(data_type: DataType, op: ReduceOp, count: u64) -> Self {
        Self { collective: Collective::ReduceScatter, data_type, op, root: 0, count }
    }

    /// Every rank ends with all vectors of `count` elements, concatenated.
    pub const fn all_gather(data_type: DataType, count: u64) -> Self {
        Self { collective: Collective::AllGather, data_type, op: ReduceOp::Sum, root: 0, count }
    }

    /// Every rank ends with the root's vector of `count` elements.
    pub const fn broadcast(data_type: DataType, root: u32, count: u64) -> Self {
        Self { collective: Collective::Broadcast, data_type, op: ReduceOp::Sum, root, count }
    }

    /// The root ends with the reduction of all vectors of `count` elements.
    pub const fn reduce(data_type: DataType, op: ReduceOp, root: u32, count: u64) -> Self {
        Self { collective: Collective::Reduce, data_type, op, root, count }
    }

    /// No rank continues before all have arrived.
    pub const fn barrier() -> Self {
        Self {
            collective: Collective::Barrier,
            data_type: DataType::U8,
            op: ReduceOp::Sum,
            root: 0,
            count: 0,
        }
    }

    /// Returns a hash of all fields that matter to the collective. Messages carry it, so that ranks
    /// detect a neighbour that called another operation.
    pub fn signature(&self) -> u16 {
        let barrier = self.collective == Collective::Barrier;
        let data_type = if barrier { DataType::U8 } else { self.data_type };
        let op = if self.collective.reduces() { self.op.code() } else { 0 };
        let root = if self.collective.has_root() { self.root } else { 0 };
        let count = if barrier { 0 } else { self.count };

        let head = [self.collective.code(), data_type.code(), op];
        let bytes = head.into_iter().chain(root.to_le_bytes()).chain(count.to_le_bytes());
        let hash = bytes
            .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        ((hash >> 16) ^ (hash & 0xffff)) as u16
    }

    /// Returns the elements of the input of `rank`.
    ///
    /// # Errors
    /// As [`output_count`](Self::output_count).
    pub fn input_count(&self, rank: u32, size: u32) -> Result<u64, OperationError> {
        self.check(size)?;
        Ok(match self.collective {
            Collective::ReduceScatter => self.count * u64::from(size),
            Collective::Broadcast if rank != self.root => 0,
            Collective::Barrier => 0,
            _ => self.count,
        })
    }

    /// Returns the elements of the output of `rank`.
    ///
    /// # Errors
    /// [`OperationError`] if the root is not a rank, or the vectors of all ranks together have 2^63
    /// bytes or more.
    pub fn output_count(&self, rank: u32, size: u32) -> Result<u64, OperationError> {
        self.check(size)?;
        Ok(match self.collective {
            Collective::AllGather => self.count * u64::from(size),
            Collective::Reduce if rank != self.root => 0,
            Collective::Barrier => 0,
            _ => self.count,
        })
    }

    /// Returns the required bytes of the input and the output of `geometry`'s rank.
    ///
    /// # Errors
    /// As [`output_count`](Self::output_count).
    pub fn buffer_bytes(&self, geometry: &Geometry) -> Result<(u64, u64), OperationError> {
        let (rank, size) = (geometry.rank(), geometry.size());
        let element = self.data_type.size() as u64;
        Ok((self.input_count(rank, size)? * element, self.output_count(rank, size)? * element))
    }

    /// Checks the root, and that no product of count, element size and ranks overflows.
    pub(crate) fn check(&self, size: u32) -> Result<(), OperationError> {
        if self.collective.has_root() && self.root >= size {
            return Err(OperationError::UnknownRoot { root: self.root, size });
        }
        let bytes = self
            .count
            .checked_mul(self.data_type.size() as u64)
            .and_then(|bytes| bytes.checked_mul(u64::from(size)));
        match bytes {
            Some(bytes) if bytes < 1 << 63 => Ok(()),
            _ => Err(OperationError::TooLarge { count: self.count, data_type: self.data_type }),
        }
    }
}

/// An operation that is impossible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OperationError {
    /// The root is not a rank.
    #[error("root {root} is not a rank of a group of {size}; use 0 to {}", size.saturating_sub(1))]
    UnknownRoot {
        /// The requested root.
        root: u32,
        /// The number of ranks.
        size: u32,
    },
    /// The vectors exceed the address space.
    #[error("{count} elements of type {data_type} exceed the address space; use fewer")]
    TooLarge {
        /// The requested count.
        count: u64,
        /// The type of the elements.
        data_type: DataType,
    },
    /// The operation has too many messages.
    #[error(
        "a rank would receive {messages} messages, more than {max}; use larger slots, or several \
         operations"
    )]
    TooManyMessages {
        /// The number of messages.
        messages: u64,
        /// The maximum.
        max: u64,
    },
}

/// The fields that matter to the collective, for people: `allreduce of 100 float with sum`.
impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { collective, data_type, op, root, count } = self;
        f.write_str(collective.name())?;
        if *collective == Collective::Barrier {
            return Ok(());
        }
        write!(f, " of {count} {}", data_type.name())?;
        if collective.reduces() {
            write!(f, " with {}", op.name())?;
        }
        if collective.has_root() { write!(f, " with root {root}") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_is_told_with_the_fields_that_matter() {
        let told = |operation: Operation| operation.to_string();
        assert_eq!(
            told(Operation::all_reduce(DataType::F32, ReduceOp::Max, 7)),
            "allreduce of 7 float with max"
        );
        assert_eq!(
            told(Operation::broadcast(DataType::U8, 2, 3)),
            "broadcast of 3 uint8 with root 2"
        );
        assert_eq!(told(Operation::barrier()), "barrier");
    }

    #[test]
    fn fields_that_do_not_matter_do_not_change_the_signature() {
        let gather = Operation::all_gather(DataType::I8, 5);
        let other = Operation { op: ReduceOp::Max, root: 3, ..gather };
        assert_eq!(gather.signature(), other.signature());
        let barrier = Operation { collective: Collective::Barrier, ..gather };
        assert_eq!(barrier.signature(), Operation::barrier().signature());
    }

    #[test]
    fn fields_that_matter_change_the_signature() {
        let reduce = Operation::reduce(DataType::F32, ReduceOp::Sum, 1, 100);
        let others = [
            Operation { collective: Collective::AllReduce, ..reduce },
            Operation { data_type: DataType::F64, ..reduce },
            Operation { op: ReduceOp::Avg, ..reduce },
            Operation { root: 2, ..reduce },
            Operation { count: 101, ..reduce },
        ];
        for other in others {
            assert_ne!(reduce.signature(), other.signature(), "{other:?}");
        }
    }

    #[test]
    fn operations_beyond_the_address_space_are_refused() {
        let huge = Operation::all_reduce(DataType::F64, ReduceOp::Sum, u64::MAX / 8);
        assert!(matches!(huge.input_count(0, 2), Err(OperationError::TooLarge { .. })));
        let gather = Operation::all_gather(DataType::U8, 1 << 62);
        assert_eq!(gather.output_count(0, 1), Ok(1 << 62));
        assert!(gather.output_count(0, 2).is_err());
        let stray = Operation::broadcast(DataType::U8, 3, 1);
        assert!(matches!(stray.input_count(0, 3), Err(OperationError::UnknownRoot { .. })));
    }
}
