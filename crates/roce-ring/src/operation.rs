//! One collective call.

use crate::{Collective, DataType, Geometry, ReduceOp};

/// One collective call, the same at every rank.
///
/// `count` is what the matching NCCL call takes, in elements: the whole vector for AllReduce,
/// Broadcast and Reduce, what each rank sends for AllGather, what each receives for
/// ReduceScatter, 0 for Barrier.
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
    /// Which collective.
    pub collective: Collective,
    /// The type of the elements.
    pub data_type: DataType,
    /// How values are combined; looked at only by collectives that combine.
    pub op: ReduceOp,
    /// The special rank of Broadcast and Reduce; not looked at by others.
    pub root: u32,
    /// Elements, as said above.
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

    /// Every rank ends with all vectors of `count` elements, one behind the other.
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

    /// No rank goes on before all have arrived.
    pub const fn barrier() -> Self {
        Self {
            collective: Collective::Barrier,
            data_type: DataType::U8,
            op: ReduceOp::Sum,
            root: 0,
            count: 0,
        }
    }

    /// What the messages of this operation carry so that a rank that called another one is
    /// found: a hash of all fields that matter to the collective.
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

    /// Elements that `rank` puts in.
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

    /// Elements that `rank` gets out.
    ///
    /// # Errors
    /// [`OperationError`] when the root is no rank, or the vectors of all ranks together have
    /// 2^63 bytes or more.
    pub fn output_count(&self, rank: u32, size: u32) -> Result<u64, OperationError> {
        self.check(size)?;
        Ok(match self.collective {
            Collective::AllGather => self.count * u64::from(size),
            Collective::Reduce if rank != self.root => 0,
            Collective::Barrier => 0,
            _ => self.count,
        })
    }

    /// Bytes of input and output buffer that `geometry`'s rank needs.
    ///
    /// # Errors
    /// As [`output_count`](Self::output_count).
    pub fn buffer_bytes(&self, geometry: &Geometry) -> Result<(u64, u64), OperationError> {
        let (rank, size) = (geometry.rank(), geometry.size());
        let element = self.data_type.size() as u64;
        Ok((self.input_count(rank, size)? * element, self.output_count(rank, size)? * element))
    }

    /// After this, no product of count, element size and ranks overflows.
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

/// Why an operation cannot be: the caller asked for something that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OperationError {
    /// The root is no rank.
    #[error("root {root} is no rank of a group of {size}; use 0 to {}", size.saturating_sub(1))]
    UnknownRoot {
        /// The root asked for.
        root: u32,
        /// How many ranks there are.
        size: u32,
    },
    /// Too many bytes to count.
    #[error("{count} elements of type {data_type} are more than addresses can reach; ask for less")]
    TooLarge {
        /// The count asked for.
        count: u64,
        /// Of which type.
        data_type: DataType,
    },
    /// More messages than one operation may have.
    #[error(
        "a rank would have to receive {messages} messages, more than {max}; use larger slots, or \
         several operations"
    )]
    TooManyMessages {
        /// How many there would be.
        messages: u64,
        /// How many there may be.
        max: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn what_cannot_be_counted_is_refused() {
        let huge = Operation::all_reduce(DataType::F64, ReduceOp::Sum, u64::MAX / 8);
        assert!(matches!(huge.input_count(0, 2), Err(OperationError::TooLarge { .. })));
        let gather = Operation::all_gather(DataType::U8, 1 << 62);
        assert_eq!(gather.output_count(0, 1), Ok(1 << 62));
        assert!(gather.output_count(0, 2).is_err());
        let stray = Operation::broadcast(DataType::U8, 3, 1);
        assert!(matches!(stray.input_count(0, 3), Err(OperationError::UnknownRoot { .. })));
    }
}
