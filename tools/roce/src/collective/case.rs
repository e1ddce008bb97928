//! The lines of the table.

use roce_ring::{Collective, DataType, Operation, ReduceOp};

/// One line of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Case {
    pub(crate) operation: Operation,
    /// Bytes, as printed.
    pub(crate) size: u64,
}

impl Case {
    pub(super) fn new(
        collective: Collective,
        data_type: DataType,
        op: ReduceOp,
        root: u32,
        bytes: u64,
        ranks: u32,
    ) -> Self {
        let element = data_type.size() as u64;
        let elements = bytes / element;
        let (count, parts) = match collective {
            Collective::AllGather | Collective::ReduceScatter => {
                let part = elements / u64::from(ranks);
                // Parts begin at multiples of 16 bytes, as in nccl-tests.
                (part - part % (16 / element), u64::from(ranks))
            }
            _ => (elements, 1),
        };
        let operation = Operation { collective, data_type, op, root, count };
        Self { operation, size: count * parts * element }
    }

    /// Returns the bytes of the input of each rank.
    pub(crate) fn input_len(&self) -> u64 {
        match self.operation.collective {
            Collective::AllGather => self.part_len(),
            _ => self.size,
        }
    }

    /// Returns the bytes of the output of each rank.
    pub(crate) fn output_len(&self) -> u64 {
        match self.operation.collective {
            Collective::ReduceScatter => self.part_len(),
            _ => self.size,
        }
    }

    fn part_len(&self) -> u64 {
        self.operation.count * self.operation.data_type.size() as u64
    }

    /// Returns the operator for the table.
    pub(crate) fn op_name(&self) -> &'static str {
        let Operation { collective, op, .. } = self.operation;
        if collective.reduces() { op.name() } else { "none" }
    }

    /// Returns the root for the table.
    pub(crate) fn root_shown(&self) -> i64 {
        if self.operation.collective.has_root() { self.operation.root.into() } else { -1 }
    }

    /// Returns the algorithm and the bus bandwidth in 10^9 bytes per second.
    pub(crate) fn bandwidths(&self, seconds: f64, ranks: u32) -> (f64, f64) {
        if seconds <= 0.0 {
            return (0.0, 0.0);
        }
        let algorithm = self.size as f64 / 1e9 / seconds;
        let ranks = f64::from(ranks);
        let factor = match self.operation.collective {
            Collective::AllReduce => 2.0 * (ranks - 1.0) / ranks,
            Collective::AllGather | Collective::ReduceScatter => (ranks - 1.0) / ranks,
            _ => 1.0,
        };
        (algorithm, algorithm * factor)
    }
}
