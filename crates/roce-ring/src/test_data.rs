//! Test vectors, and the check of their reductions.
//!
//! Element i of rank r is ((5 i + 3 r) mod 13) − 6, without the −6 for unsigned types; for
//! products it is 1 + ((i + r) mod 2) for the first eight ranks and 1 for the others, so that
//! they stay small.
//!
//! Integers and moved data must be exact, as must floats while every intermediate result is a whole
//! number that the type represents. Otherwise each of n sequential operations has a relative error
//! of at most u, half the distance of 1 to the next number of the type. So a sum is wrong by at
//! most γ Σ|x| and a product by at most γ |product|, with γ = n u / (1 − n u) (the classical bound
//! for any order of summation). Half and bfloat16 round twice, first to single precision, so their
//! u is 1.001 times larger.
//!
//! ```
//! use roce_ring::{DataType, Operation, ReduceOp, test_data};
//!
//! // Element 0 of two ranks: −6 and −3.
//! let mut bytes = [0; 4];
//! test_data::fill(DataType::I32, ReduceOp::Sum, 1, 0, &mut bytes);
//! assert_eq!(i32::from_le_bytes(bytes), -3);
//!
//! let sum = Operation::all_reduce(DataType::I32, ReduceOp::Sum, 1);
//! assert_eq!(test_data::wrong_elements(&sum, 0, 2, 0, &(-9_i32).to_le_bytes()), 0);
//! assert_eq!(test_data::wrong_elements(&sum, 0, 2, 0, &(-8_i32).to_le_bytes()), 1);
//! ```

use half::{bf16, f16};

use crate::{Collective, DataType, Operation, ReduceOp};

/// The period of the values, in elements.
const PERIOD: usize = 26;

/// Fills `bytes` with the input of `rank` from element `first` on. A partial element at the end
/// stays unchanged.
pub fn fill(data_type: DataType, op: ReduceOp, rank: u32, first: u64, bytes: &mut [u8]) {
    let size = data_type.size();
    let mut period = [0; PERIOD * 8];
    let period = &mut period[..PERIOD * size];
    for (i, element) in period.chunks_exact_mut(size).enumerate() {
        let i = first % PERIOD as u64 + i as u64;
        element.copy_from_slice(&encode(data_type, value(data_type, op, rank, i))[..size]);
    }
    let whole = bytes.len() - bytes.len() % size;
    for run in bytes[..whole].chunks_mut(period.len()) {
        run.copy_from_slice(&period[..run.len()]);
    }
}

/// How many elements of `output` are wrong; it is a part of the output of `rank` among `size`
/// ranks that starts at its element `first`.
///
/// It costs a comparison per element, and `size` times a little per call.
pub fn wrong_elements(
    operation: &Operation,
    rank: u32,
    size: u32,
    first: u64,
    output: &[u8],
) -> u64 {
    let Operation { collective, data_type, op, root, count } = *operation;
    let only = |rank: u32, i: u64| Expected::exact(data_type, value(data_type, op, rank, i));
    let elements = (first..).zip(output.chunks_exact(data_type.size()));
    let wrong = |expected: &Expected, element: &[u8]| u64::from(!expected.matches(element));
    match collective {
        Collective::Barrier => 0,
        Collective::Reduce if rank != root => 0,
        Collective::Broadcast => elements.map(|(j, x)| wrong(&only(root, j), x)).sum(),
        Collective::AllGather => {
            let count = count.max(1);
            elements.map(|(j, x)| wrong(&only((j / count) as u32, j % count), x)).sum()
        }
        Collective::AllReduce | Collective::ReduceScatter | Collective::Reduce => {
            let scattered = collective == Collective::ReduceScatter;
            let start = if scattered { u64::from(rank).wrapping_mul(count) } else { 0 };
            let phase = start.wrapping_add(first) % PERIOD as u64;
            let period: Vec<_> = (phase..phase + PERIOD as u64)
                .map(|i| Expected::reduced(data_type, op, size, i))
                .collect();
            let expected = period.iter().cycle();
            elements.zip(expected).map(|((_, x), expected)| wrong(expected, x)).sum()
        }
    }
}

/// Returns the largest error of a reduction over `size` ranks in a float type, if Σ|x| (for a
/// product, its absolute value) is `magnitude`; 0 for integers.
pub fn tolerance(data_type: DataType, op: ReduceOp, size: u32, magnitude: f64) -> f64 {
    let unit = match data_type {
        DataType::F64 => 2_f64.powi(-53),
        DataType::F32 => 2_f64.powi(-24),
        DataType::F16 => 2_f64.powi(-11) * 1.001,
        DataType::Bf16 => 2_f64.powi(-8) * 1.001,
        _ => 0.0,
    };
    let size = f64::from(size);
    let bound =
        |operations: f64| operations * unit / (1.0 - operations * unit).max(f64::MIN_POSITIVE);
    match op {
        ReduceOp::Max | ReduceOp::Min => 0.0,
        ReduceOp::Sum | ReduceOp::Prod => bound(size - 1.0) * magnitude,
        ReduceOp::Avg => bound(size) * magnitude / size,
    }
}

/// The expected element of an output.
struct Expected {
    data_type: DataType,
    /// For integers, the element; for floats, unused.
    bytes: [u8; 8],
    value: f64,
    tolerance: f64,
}

impl Expected {
    fn exact(data_type: DataType, value: i64) -> Self {
        let bytes = encode(data_type, value);
        Self { data_type, bytes, value: value as f64, tolerance: 0.0 }
    }

    /// Returns the naive reference, which shares no code with the kernels.
    fn reduced(data_type: DataType, op: ReduceOp, size: u32, i: u64) -> Self {
        let values = || (0..size).map(|rank| value(data_type, op, rank, i));
        let whole = match op {
            ReduceOp::Sum | ReduceOp::Avg => values().sum::<i64>(),
            ReduceOp::Prod => values().product(),
            ReduceOp::Max => values().max().unwrap_or(0),
            ReduceOp::Min => values().min().unwrap_or(0),
        };
        let magnitude = match op {
            ReduceOp::Prod => whole,
            _ => values().map(i64::abs).sum(),
        };
        let mut expected = Self::exact(data_type, whole);
        if op == ReduceOp::Avg {
            expected.divide(whole, size);
        }
        if magnitude as f64 > whole_numbers(data_type) {
            if op == ReduceOp::Avg {
                expected.value = whole as f64 / f64::from(size);
            }
            expected.tolerance = tolerance(data_type, op, size, magnitude as f64);
        }
        expected
    }

    /// Divides as the type divides; `whole` wraps around first.
    fn divide(&mut self, whole: i64, size: u32) {
        let by = i64::from(size);
        self.bytes = match self.data_type {
            DataType::I8 => encode(self.data_type, i64::from(whole as i8) / by),
            DataType::U8 => encode(self.data_type, i64::from(whole as u8) / by),
            DataType::I32 => encode(self.data_type, i64::from(whole as i32) / by),
            DataType::U32 => encode(self.data_type, i64::from(whole as u32) / by),
            // The sums of 65536 values below 13 do not wrap around here.
            _ => encode(self.data_type, whole / by),
        };
        let single = whole as f32 / size as f32;
        self.value = match self.data_type {
            DataType::F16 => f16::from_f32(single).to_f64(),
            DataType::Bf16 => bf16::from_f32(single).to_f64(),
            DataType::F32 => f64::from(single),
            _ => whole as f64 / f64::from(size),
        };
    }

    fn matches(&self, element: &[u8]) -> bool {
        match decode(self.data_type, element) {
            None => self.bytes.starts_with(element),
            // A NaN matches nothing.
            Some(found) => (found - self.value).abs() <= self.tolerance,
        }
    }
}

/// Element `i` of `rank`'s input.
fn value(data_type: DataType, op: ReduceOp, rank: u32, i: u64) -> i64 {
    if op == ReduceOp::Prod {
        let odd = i % 2 != u64::from(rank) % 2;
        return if rank < 8 { 1 + i64::from(odd) } else { 1 };
    }
    let spread = (i % 13 * 5 + u64::from(rank) * 3) % 13;
    spread as i64 - if data_type.is_signed() { 6 } else { 0 }
}

/// Returns the largest number up to which a float type represents every whole number.
fn whole_numbers(data_type: DataType) -> f64 {
    match data_type {
        DataType::F64 => 2_f64.powi(53),
        DataType::F32 => 2_f64.powi(24),
        DataType::F16 => 2_f64.powi(11),
        DataType::Bf16 => 2_f64.powi(8),
        _ => f64::INFINITY,
    }
}

/// A whole number as an element, at the start of eight bytes; integers wrap around.
fn encode(data_type: DataType, value: i64) -> [u8; 8] {
    let mut bytes = [0; 8];
    match data_type {
        DataType::F64 => bytes = (value as f64).to_le_bytes(),
        DataType::F32 => bytes[..4].copy_from_slice(&(value as f32).to_le_bytes()),
        DataType::F16 => bytes[..2].copy_from_slice(&f16::from_f64(value as f64).to_le_bytes()),
        DataType::Bf16 => bytes[..2].copy_from_slice(&bf16::from_f64(value as f64).to_le_bytes()),
        // The low bytes are the wrapped value.
        _ => bytes = value.to_le_bytes(),
    }
    bytes
}

/// A float element's value; `None` for integers.
fn decode(data_type: DataType, element: &[u8]) -> Option<f64> {
    match data_type {
        DataType::F64 => Some(f64::from_le_bytes(element.try_into().ok()?)),
        DataType::F32 => Some(f32::from_le_bytes(element.try_into().ok()?).into()),
        DataType::F16 => Some(f16::from_le_bytes(element.try_into().ok()?).to_f64()),
        DataType::Bf16 => Some(bf16::from_le_bytes(element.try_into().ok()?).to_f64()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pattern_begins_anywhere_as_the_formula_says() {
        for (first, rank) in [(0, 0), (1, 1), (25, 7), (26, 8), (u64::MAX - 100, 65535)] {
            let (mut sums, mut products) = ([0; 100], [0; 100]);
            fill(DataType::I8, ReduceOp::Avg, rank, first, &mut sums);
            fill(DataType::U8, ReduceOp::Prod, rank, first, &mut products);
            for (j, (sum, product)) in (0..).zip(sums.into_iter().zip(products)) {
                let (i, r) = (u128::from(first) + j, u128::from(rank));
                assert_eq!(i32::from(sum as i8), ((i * 5 + r * 3) % 13) as i32 - 6);
                let odd = if rank < 8 { (i + r) % 2 } else { 0 };
                assert_eq!(u128::from(product), 1 + odd);
            }
        }
    }

    #[test]
    fn a_part_of_an_element_is_left_as_it_is() {
        let mut bytes = [0xee; 7];
        fill(DataType::F32, ReduceOp::Sum, 0, 0, &mut bytes);
        assert_eq!(bytes[..4], (-6.0_f32).to_le_bytes());
        assert_eq!(bytes[4..], [0xee; 3]);
    }

    #[test]
    fn a_nan_is_wrong_whatever_the_bound() {
        let sum = Operation::all_reduce(DataType::Bf16, ReduceOp::Sum, 1);
        assert_eq!(wrong_elements(&sum, 0, 64, 0, &bf16::NAN.to_le_bytes()), 1);
    }
}
