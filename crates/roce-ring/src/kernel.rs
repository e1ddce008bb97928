//! Reduction and division of blocks of elements.
//!
//! Blocks are bytes: they need no alignment, and their elements are little-endian. Integers
//! wrap around. Half and bfloat16 are computed in single precision and rounded to nearest even
//! after every operation, with an error of at most half a unit in the last place;
//! [`crate::test_data`] states the bound over a ring. The loops have no branch and compile to
//! vector instructions.
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
/// Reduces the whole elements that both blocks have.
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
    // No group has zero ranks; dividing by one changes nothing.
    let by = by.max(1);
    macro_rules! by {
        ($type:ty, $wide:ty) => {
            map(block, |a| {
                ((<$type>::from_le_bytes(a) as $wide / by as $wide) as $type).to_le_bytes()
            })
        };
    }
    match data_type {
        DataType::I8 => bytes(block, |a| (i64::from(a as i8) / i64::from(by)) as u8),
        DataType::U8 => bytes(block, |a| (u32::from(a) / by) as u8),
        DataType::I32 => by!(i32, i64),
        DataType::U32 => by!(u32, u32),
        DataType::I64 => by!(i64, i64),
        DataType::U64 => by!(u64, u64),
        DataType::F32 => by!(f32, f32),
        DataType::F64 => by!(f64, f64),
        DataType::Bf16 => in_single::<Brain>(block, None, |a, _| a / by as f32),
        DataType::F16 => in_single::<Half>(block, None, |a, _| a / by as f32),
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

/// Maps bytes: a table of all results is faster than thousands of divisions.
fn bytes(block: &mut [u8], change: impl Fn(u8) -> u8) {
    let results: [u8; 256] = std::array::from_fn(|a| change(a as u8));
    map(block, |[a]| [results[usize::from(a)]]);
}

/// A two-byte type that is computed in single precision, many elements at a time.
trait Narrow {
    fn widen_all(from: &[[u8; 2]], into: &mut [f32; RUN]);
    fn narrow_all(from: &[f32; RUN], into: &mut [[u8; 2]]);
}

/// The number of elements that are widened at once.
const RUN: usize = 256;

#[inline(always)]
fn narrow<T: Narrow>(op: ReduceOp, left: &mut [u8], right: &[u8]) {
    match op {
        ReduceOp::Sum | ReduceOp::Avg => in_single::<T>(left, Some(right), |a, b| a + b),
        ReduceOp::Prod => in_single::<T>(left, Some(right), |a, b| a * b),
        ReduceOp::Max => {
            in_single::<T>(left, Some(right), |a, b| if (a >= b) | b.is_nan() { a } else { b });
        }
        ReduceOp::Min => {
            in_single::<T>(left, Some(right), |a, b| if (a <= b) | b.is_nan() { a } else { b });
        }
    }
}

/// Reduces `left` with `right`, or maps `left` alone, in single precision.
#[inline(always)]
fn in_single<T: Narrow>(left: &mut [u8], right: Option<&[u8]>, combine: impl Fn(f32, f32) -> f32) {
    let left = left.as_chunks_mut::<2>().0;
    let mut right = right.map(|right| right.as_chunks::<2>().0.chunks(RUN));
    let (mut wide_left, mut wide_right) = ([0.0; RUN], [0.0; RUN]);
    for a in left.chunks_mut(RUN) {
        let mut len = a.len();
        if let Some(right) = &mut right {
            let Some(b) = right.next() else { break };
            len = len.min(b.len());
            T::widen_all(&b[..len], &mut wide_right);
        }
        T::widen_all(&a[..len], &mut wide_left);
        for (x, y) in wide_left.iter_mut().zip(&wide_right) {
            *x = combine(*x, *y);
        }
        T::narrow_all(&wide_left, &mut a[..len]);
    }
}

struct Half;

impl Narrow for Half {
    #[inline(always)]
    fn widen_all(from: &[[u8; 2]], into: &mut [f32; RUN]) {
        let mut halves = [f16::ZERO; RUN];
        for (half, bytes) in halves.iter_mut().zip(from) {
            *half = f16::from_le_bytes(*bytes);
        }
        halves.convert_to_f32_slice(into);
    }

    #[inline(always)]
    fn narrow_all(from: &[f32; RUN], into: &mut [[u8; 2]]) {
        let mut halves = [f16::ZERO; RUN];
        halves.convert_from_f32_slice(from);
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
    fn widen_all(from: &[[u8; 2]], into: &mut [f32; RUN]) {
        for (wide, bytes) in into.iter_mut().zip(from) {
            *wide = Self::widen(*bytes);
        }
    }

    #[inline(always)]
    fn narrow_all(from: &[f32; RUN], into: &mut [[u8; 2]]) {
        for (bytes, wide) in into.iter_mut().zip(from) {
            *bytes = Self::narrow(*wide);
        }
    }
}

#[cfg(test)]
mod tests {
    use half::bf16;

    use super::*;

    /// One element each, through a block that also has whole vectors and a rest.
    fn combined<const N: usize>(
        data_type: DataType,
        op: ReduceOp,
        a: [u8; N],
        b: [u8; N],
    ) -> [u8; N] {
        let (mut left, right) = (a.repeat(RUN + 3), b.repeat(RUN + 3));
        // Nothing is aligned.
        left.insert(0, 0);
        reduce(data_type, op, &mut left[1..], &right);
        let (first, last) = (left[1..][..N].to_vec(), left[left.len() - N..].to_vec());
        assert_eq!(first, last, "{data_type} {op}");
        first.try_into().unwrap()
    }

    fn divided<const N: usize>(data_type: DataType, a: [u8; N], by: u32) -> [u8; N] {
        let mut block = a.repeat(RUN + 3);
        divide(data_type, &mut block, by);
        assert_eq!(block[..N], block[block.len() - N..]);
        block[..N].try_into().unwrap()
    }

    #[test]
    fn integers_wrap_around() {
        let sum = combined(DataType::I8, ReduceOp::Sum, [127], [1]);
        assert_eq!(sum, [128]);
        let product = combined(DataType::U32, ReduceOp::Prod, [0, 0, 1, 0], [0, 0, 1, 0]);
        assert_eq!(product, [0; 4]);
    }

    #[test]
    fn signs_matter_to_the_signed_alone() {
        assert_eq!(combined(DataType::I8, ReduceOp::Max, [0xff], [1]), [1]);
        assert_eq!(combined(DataType::U8, ReduceOp::Max, [0xff], [1]), [0xff]);
        assert_eq!(combined(DataType::I8, ReduceOp::Min, [0xff], [1]), [0xff]);
        assert_eq!(combined(DataType::U8, ReduceOp::Min, [0xff], [1]), [1]);
    }

    #[test]
    fn quotients_of_integers_truncate_toward_zero() {
        assert_eq!(divided(DataType::I8, (-7_i8).to_le_bytes(), 2), (-3_i8).to_le_bytes());
        assert_eq!(divided(DataType::I8, (-128_i8).to_le_bytes(), 65536), [0]);
        assert_eq!(divided(DataType::U8, [255], 300), [0]);
        assert_eq!(
            divided(DataType::I32, i32::MIN.to_le_bytes(), 3),
            (-715_827_882_i32).to_le_bytes()
        );
        assert_eq!(divided(DataType::I64, (-7_i64).to_le_bytes(), 2), (-3_i64).to_le_bytes());
        assert_eq!(divided(DataType::U64, u64::MAX.to_le_bytes(), 1), u64::MAX.to_le_bytes());
        assert_eq!(divided(DataType::U64, [7; 8], 0), [7; 8]);
    }

    #[test]
    fn a_number_wins_against_a_nan_and_the_left_of_two_equals_stays() {
        let nan = f32::NAN.to_le_bytes();
        let one = 1.0_f32.to_le_bytes();
        let (plus, minus) = (0.0_f32.to_le_bytes(), (-0.0_f32).to_le_bytes());
        for op in [ReduceOp::Max, ReduceOp::Min] {
            assert_eq!(combined(DataType::F32, op, nan, one), one);
            assert_eq!(combined(DataType::F32, op, one, nan), one);
            assert_eq!(combined(DataType::F32, op, plus, minus), plus);
            assert_eq!(combined(DataType::F32, op, minus, plus), minus);
            let nan = bf16::NAN.to_le_bytes();
            let one = bf16::ONE.to_le_bytes();
            assert_eq!(combined(DataType::Bf16, op, nan, one), one);
            assert_eq!(combined(DataType::Bf16, op, one, nan), one);
        }
    }

    #[test]
    fn halves_and_bfloats_round_to_nearest_even_as_if_one_by_one() {
        // A spread of bit patterns against each other: no two NaNs, whose bits may differ.
        let patterns: Vec<u16> = (0..=u16::MAX).step_by(97).collect();
        for &b in &[0x0001_u16, 0x3c00, 0x3f80, 0x3f81, 0xbf80, 0x7bff, 0x8001, 0x0400] {
            for &a in &patterns {
                let (a, b) = (a.to_le_bytes(), b.to_le_bytes());
                let half = f16::from_le_bytes(a).to_f32() + f16::from_le_bytes(b).to_f32();
                if !half.is_nan() {
                    let sum = combined(DataType::F16, ReduceOp::Sum, a, b);
                    assert_eq!(sum, f16::from_f32(half).to_le_bytes(), "{a:?} {b:?}");
                }
                let brain = bf16::from_le_bytes(a).to_f32() * bf16::from_le_bytes(b).to_f32();
                if !brain.is_nan() {
                    let product = combined(DataType::Bf16, ReduceOp::Prod, a, b);
                    assert_eq!(product, bf16::from_f32(brain).to_le_bytes(), "{a:?} {b:?}");
                }
            }
        }
    }

    #[test]
    fn a_nan_stays_a_nan_when_it_is_narrowed() {
        // The bits that bfloat16 keeps are all zero but for the exponent.
        let narrowed = Brain::narrow(f32::from_bits(0x7f80_0001));
        assert!(bf16::from_le_bytes(narrowed).is_nan());
        assert!(bf16::from_le_bytes(Brain::narrow(f32::from_bits(0xffff_ffff))).is_nan());
    }

    #[test]
    fn blocks_of_different_lengths_are_combined_as_far_as_both_go() {
        for data_type in DataType::ALL {
            let mut left = vec![0x11; 1000];
            reduce(data_type, ReduceOp::Max, &mut left, &[0x22; 17]);
            let whole = 17 / data_type.size() * data_type.size();
            assert!(left[..whole].iter().all(|&byte| byte == 0x22), "{data_type}");
            assert!(left[whole..].iter().all(|&byte| byte == 0x11), "{data_type}");
        }
    }
}
