//! The values that benches sum, and whether the results are right.

use crate::{DataType, Operation, ReduceOp};

/// Fills `bytes` with the input of `rank`, from element `first` on.
pub fn fill(_data_type: DataType, _op: ReduceOp, _rank: u32, _first: u64, _bytes: &mut [u8]) {}

/// How many elements of `output`, which starts at element `first` of `rank`'s output, are wrong.
pub fn wrong_elements(
    _operation: &Operation,
    _rank: u32,
    _size: u32,
    _first: u64,
    _output: &[u8],
) -> u64 {
    0
}
