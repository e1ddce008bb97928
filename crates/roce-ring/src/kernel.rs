//! Combining blocks of elements.

use crate::{DataType, ReduceOp};

/// `left` = `left` ∘ `right`, element by element.
pub fn reduce(_data_type: DataType, _op: ReduceOp, _left: &mut [u8], _right: &[u8]) {}

/// Divides every element of `block`.
pub fn divide(_data_type: DataType, _block: &mut [u8], _by: u32) {}
