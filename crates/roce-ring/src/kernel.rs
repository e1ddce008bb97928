//! Combining and dividing blocks of elements.
//!
//! Blocks are bytes: they need no alignment, and their elements are little-endian. Integers
//! wrap around. Half and bfloat16 are computed in single precision and rounded to nearest even
//! after every operation; so an error of at most half a unit in the last place comes in each
//! time, and what that adds up to over a ring is said in [`crate::pattern`]. The loops have no
//! branch and compile to vector instructions.
//!
//! ```
//! use roce_ring::{DataType, ReduceOp, kernel};
//!
//! let mut left: Vec<u8> = [1.5_f32, 2.0].iter().flat_map(|x| x.to_le_bytes()).collect();
//! let right: Vec<u8> = [0.5_f32, -4.0].iter().flat_map(|x| x.to_le_bytes()).collect();
//! kernel::reduce(DataType::F32, ReduceOp::Sum, &mut left, &right);
//! kernel::divide(DataType::F32, &mut left, 2);
//! assert_eq!(left, [1.0_f32.to_le_bytes(), (-1.0_f32).to_le_bytes()].concat());
//! ```

use half::f16;
use half::slice::HalfFloatSliceExt;

use crate::{DataType, ReduceOp};

/// `left` = `left` ∘ `right`, element by element; an average is a sum here.
///
/// Only whole elements that both blocks have are combined.
pub fn reduce(data_type: DataType, op: ReduceOp, left: &mut [u8], right: &[u8]) {
    macro_rules! integers {
        ($type:ty) => {
            match op {
                ReduceOp::Sum | ReduceOp::Avg => zip(left, right, |a, b| {
                    <$type>::from_le_bytes(a).wrapping_add(<$type>::from_le_bytes(b)).to_le_bytes()
                }),
                ReduceOp::Prod => zip(left, right, |a, b| {
                    <$type>::from_le_bytes(a).wrapping_mul(<$type>::from_le_bytes(b)).to_le_bytes()
                }),
                ReduceOp::Max => zip(left, right, |a, b| {
                    <$type>::from_le_bytes(a).max(<$type>::from_le_bytes(b)).to_le_bytes()
                }),
                ReduceOp::Min => zip(left, right, |a, b| {
                    <$type>::from_le_bytes(a).min(<$type>::from_le_bytes(b)).to_le_bytes()
                }),
            }
        };
    }
    macro_rules! floats {
        ($type:ty) => {
            match op {
                ReduceOp::Sum | ReduceOp::Avg => zip(left, right, |a, b| {
                    (<$type>::from_le_bytes(a) + <$type>::from_le_bytes(b)).to_le_bytes()
                }),
                ReduceOp::Prod => zip(left, right, |a, b| {
                    (<$type>::from_le_bytes(a) * <$type>::from_le_bytes(b)).to_le_bytes()
                }),
                ReduceOp::Max => zip(left, right, |a, b| {
                    let (a, b) = (<$type>::from_le_bytes(a), <$type>::from_le_bytes(b));
                    (if (a >= b) | b.is_nan() { a } else { b }).to_le_bytes()
                }),
                ReduceOp::Min => zip(left, right, |a, b| {
                    let (a, b) = (<$type>::from_le_bytes(a), <$type>::from_le_bytes(b));
                    (if (a <= b) | b.is_nan() { a } else { b }).to_le_bytes()
                }),
            }
        };
    }
    match data_type {
        DataType::I8 => integers!(i8),
        DataType::U8 => integers!(u8),
        DataType::I32 => integers!(i32),
        DataType::U32 => integers!(u32),
        DataType::I64 => integers!(i64),
        DataType::U64 => integers!(u64),
        DataType::F32 => floats!(f32),
        DataType::F64 => floats!(f64),
        DataType::Bf16 => narrow::<Brain>(op, left, right),
        DataType::F16 => narrow::<Half>(op, left, right),
    }
}

/// Divides every element of `block` by `by`, which is not 0. Integers truncate toward zero.
pub fn divide(data_type: DataType, block: &mut [u8], by: u32) {
    // A divisor of zero is no group; dividing by one instead changes nothing.
    let by = by.max(1);
    macro_rules! by {
        ($type:ty, $wide:ty) => {
            map(block, |a| {
                ((<$type>::from_le_bytes(a) as $wide / by as $wide) as $type).to_le_bytes()
            })
        };
    }
    match data_type {
        DataType::I8 => by!(i8, i64),
        DataType::U8 => by!(u8, u32),
        DataType::I32 => by!(i32, i64),
        DataType::U32 => by!(u32, u32),
        DataType::I64 => by!(i64, i64),
        DataType::U64 => by!(u64, u64),
        DataType::F32 => by!(f32, f32),
        DataType::F64 => by!(f64, f64),
        DataType::Bf16 => map(block, |a| Brain::narrow(Brain::widen(a) / by as f32)),
        DataType::F16 => {
            map(block, |a| f16::from_f32(f16::from_le_bytes(a).to_f32() / by as f32).to_le_bytes())
        }
    }
}

#[inline(always)]
fn zip<const N: usize>(
    left: &mut [u8],
    right: &[u8],
    combine: impl Fn([u8; N], [u8; N]) -> [u8; N],
) {
    let (left, right) = (left.as_chunks_mut::<N>().0, right.as_chunks::<N>().0);
    for (a, b) in left.iter_mut().zip(right) {
        *a = combine(*a, *b);
    }
}

#[inline(always)]
fn map<const N: usize>(block: &mut [u8], change: impl Fn([u8; N]) -> [u8; N]) {
    for a in block.as_chunks_mut::<N>().0 {
        *a = change(*a);
    }
}

/// A type of two bytes that is computed in single precision, a run of elements at a time.
trait Narrow {
    fn widen_all(from: &[[u8; 2]], into: &mut [f32]);
    fn narrow_all(from: &[f32], into: &mut [[u8; 2]]);
}

/// Elements that are widened at once.
const RUN: usize = 64;

#[inline(always)]
fn narrow<T: Narrow>(op: ReduceOp, left: &mut [u8], right: &[u8]) {
    match op {
        ReduceOp::Sum | ReduceOp::Avg => in_single::<T>(left, right, |a, b| a + b),
        ReduceOp::Prod => in_single::<T>(left, right, |a, b| a * b),
        ReduceOp::Max => {
            in_single::<T>(left, right, |a, b| if (a >= b) | b.is_nan() { a } else { b });
        }
        ReduceOp::Min => {
            in_single::<T>(left, right, |a, b| if (a <= b) | b.is_nan() { a } else { b });
        }
    }
}

#[inline(always)]
fn in_single<T: Narrow>(left: &mut [u8], right: &[u8], combine: impl Fn(f32, f32) -> f32) {
    let (left, right) = (left.as_chunks_mut::<2>().0, right.as_chunks::<2>().0);
    let (mut wide_left, mut wide_right) = ([0.0; RUN], [0.0; RUN]);
    for (a, b) in left.chunks_mut(RUN).zip(right.chunks(RUN)) {
        let len = a.len().min(b.len());
        T::widen_all(&a[..len], &mut wide_left);
        T::widen_all(&b[..len], &mut wide_right);
        for (x, y) in wide_left.iter_mut().zip(&wide_right) {
            *x = combine(*x, *y);
        }
        T::narrow_all(&wide_left, &mut a[..len]);
    }
}

struct Half;

impl Narrow for Half {
    #[inline(always)]
    fn widen_all(from: &[[u8; 2]], into: &mut [f32]) {
        let mut halves = [f16::ZERO; RUN];
        for (half, bytes) in halves.iter_mut().zip(from) {
            *half = f16::from_le_bytes(*bytes);
        }
        halves.convert_to_f32_slice(&mut into[..RUN]);
    }

    #[inline(always)]
    fn narrow_all(from: &[f32], into: &mut [[u8; 2]]) {
        let mut halves = [f16::ZERO; RUN];
        halves.convert_from_f32_slice(&from[..RUN]);
        for (bytes, half) in into.iter_mut().zip(halves) {
            *bytes = half.to_le_bytes();
        }
    }
}

struct Brain;

impl Brain {
    #[inline(always)]
    fn widen(bytes: [u8; 2]) -> f32 {
        f32::from_bits(u32::from(u16::from_le_bytes(bytes)) << 16)
    }

    /// To nearest, ties to even; a NaN stays one.
    #[inline(always)]
    fn narrow(value: f32) -> [u8; 2] {
        let bits = value.to_bits();
        let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
        let quiet = bits >> 16 | 0x40;
        let chosen = if value.is_nan() { quiet } else { rounded };
        (chosen as u16).to_le_bytes()
    }
}

impl Narrow for Brain {
    #[inline(always)]
    fn widen_all(from: &[[u8; 2]], into: &mut [f32]) {
        for (wide, bytes) in into.iter_mut().zip(from) {
            *wide = Self::widen(*bytes);
        }
    }

    #[inline(always)]
    fn narrow_all(from: &[f32], into: &mut [[u8; 2]]) {
        for (bytes, wide) in into.iter_mut().zip(from) {
            *bytes = Self::narrow(*wide);
        }
    }
}
