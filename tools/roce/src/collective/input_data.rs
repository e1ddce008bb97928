//! The input of ranks, and the check of their results.

use half::{bf16, f16};
use roce_ring::{Collective, DataType, Operation, ReduceOp, test_data};

use super::case::Case;

/// The kind of input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum InputData {
    /// Small numbers that differ between elements and ranks
    Pattern,
    /// r + 1 in every element of rank r
    Rank,
}

impl InputData {
    /// Returns the name among the job's fields.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Pattern => "pattern",
            Self::Rank => "rank",
        }
    }

    /// Fills a part of `rank`'s input from element `first` on.
    pub(crate) fn fill(self, operation: &Operation, rank: u32, first: u64, bytes: &mut [u8]) {
        let Operation { data_type, op, .. } = *operation;
        match self {
            Self::Pattern => test_data::fill(data_type, op, rank, first, bytes),
            Self::Rank => {
                let element = encode(data_type, f64::from(rank) + 1.0);
                let len = data_type.size();
                bytes.chunks_exact_mut(len).for_each(|to| to.copy_from_slice(&element[..len]));
            }
        }
    }

    /// Returns the wrong elements in a part of the output of `rank` of `ranks`, from element
    /// `first` on.
    pub(crate) fn wrong_elements(
        self,
        case: &Case,
        rank: u32,
        ranks: u32,
        first: u64,
        bytes: &[u8],
    ) -> u64 {
        let operation = &case.operation;
        if self == Self::Pattern {
            return test_data::wrong_elements(operation, rank, ranks, first, bytes);
        }
        let Operation { collective, data_type, op, root, count } = *operation;
        if collective == Collective::Reduce && rank != root {
            return 0;
        }
        let elements = (first..).zip(bytes.chunks_exact(data_type.size()));
        let wrong = elements.filter(|(i, element)| {
            let expected = match collective {
                Collective::AllGather => (i / count.max(1)) as f64 + 1.0,
                Collective::Broadcast => f64::from(root) + 1.0,
                _ => reduced(op, ranks),
            };
            **element != encode(data_type, expected)[..data_type.size()]
        });
        wrong.count() as u64
    }
}

/// Returns the most ranks for which every result of the rank numbers is exact in the type.
pub(crate) fn max_ranks(data_type: DataType, op: ReduceOp) -> u32 {
    let limit = largest_whole(data_type);
    // An average is computed from a sum.
    let fits = |ranks: &u32| reduced(if op == ReduceOp::Avg { ReduceOp::Sum } else { op }, *ranks);
    (1..=4096).take_while(|ranks| fits(ranks) <= limit).last().unwrap_or(0)
}

/// Returns the reduction of 1, 2, ... `ranks`.
fn reduced(op: ReduceOp, ranks: u32) -> f64 {
    let all = || (1..=ranks).map(f64::from);
    match op {
        ReduceOp::Sum => all().sum(),
        ReduceOp::Prod => all().product(),
        ReduceOp::Max => f64::from(ranks),
        ReduceOp::Min => 1.0,
        ReduceOp::Avg => all().sum::<f64>() / f64::from(ranks),
    }
}

fn largest_whole(data_type: DataType) -> f64 {
    match data_type {
        DataType::I8 => 127.0,
        DataType::U8 => 255.0,
        DataType::I32 => f64::from(i32::MAX),
        DataType::U32 => f64::from(u32::MAX),
        DataType::I64 | DataType::U64 | DataType::F64 => 2_f64.powi(53),
        DataType::F32 => 2_f64.powi(24),
        DataType::F16 => 2_f64.powi(11),
        DataType::Bf16 => 2_f64.powi(8),
    }
}

/// Encodes a small number at the start of eight bytes; integers truncate.
///
/// Averages of whole numbers from 1 on are whole or a half, which every float type represents.
fn encode(data_type: DataType, value: f64) -> [u8; 8] {
    let mut bytes = [0; 8];
    match data_type {
        DataType::F64 => bytes = value.to_le_bytes(),
        DataType::F32 => bytes[..4].copy_from_slice(&(value as f32).to_le_bytes()),
        DataType::F16 => bytes[..2].copy_from_slice(&f16::from_f64(value).to_le_bytes()),
        DataType::Bf16 => bytes[..2].copy_from_slice(&bf16::from_f64(value).to_le_bytes()),
        _ => bytes = (value as i64).to_le_bytes(),
    }
    bytes
}

/// Formats an element.
pub(crate) fn format_element(data_type: DataType, element: &[u8]) -> String {
    fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
        let mut array = [0; N];
        let len = N.min(bytes.len());
        array[..len].copy_from_slice(&bytes[..len]);
        array
    }
    match data_type {
        DataType::I8 => i8::from_le_bytes(array(element)).to_string(),
        DataType::U8 => u8::from_le_bytes(array(element)).to_string(),
        DataType::I32 => i32::from_le_bytes(array(element)).to_string(),
        DataType::U32 => u32::from_le_bytes(array(element)).to_string(),
        DataType::I64 => i64::from_le_bytes(array(element)).to_string(),
        DataType::U64 => u64::from_le_bytes(array(element)).to_string(),
        DataType::F64 => format!("{:?}", f64::from_le_bytes(array(element))),
        DataType::F32 => format!("{:?}", f32::from_le_bytes(array(element))),
        DataType::F16 => format!("{:?}", f16::from_le_bytes(array(element)).to_f32()),
        DataType::Bf16 => format!("{:?}", bf16::from_le_bytes(array(element)).to_f32()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::job::{self, Job};
    use super::*;

    #[test]
    fn rank_numbers_are_encoded_in_every_type() {
        for data_type in DataType::ALL {
            for value in 1..=100 {
                let element = encode(data_type, f64::from(value));
                let text = format_element(data_type, &element[..data_type.size()]);
                let expected =
                    if data_type.is_float() { format!("{value}.0") } else { value.to_string() };
                assert_eq!(text, expected, "{data_type}");
            }
        }
        assert_eq!(format_element(DataType::F16, &encode(DataType::F16, 1.5)[..2]), "1.5");
        assert_eq!(format_element(DataType::F16, &0xfc00_u16.to_le_bytes()), "-inf");
    }

    #[test]
    fn the_rank_numbers_of_three_ranks_sum_to_six() {
        let case = Job { min: 4, max: 4, ..job::example() }.cases(3)[0];
        let mut input = [0; 4];
        InputData::Rank.fill(&case.operation, 2, 0, &mut input);
        assert_eq!(input, 3.0_f32.to_le_bytes());
        let wrong = |sum: f32| InputData::Rank.wrong_elements(&case, 0, 3, 0, &sum.to_le_bytes());
        assert_eq!((wrong(6.0), wrong(5.0)), (0, 1));
    }

    #[test]
    fn results_of_rank_numbers_are_exact_or_refused() {
        assert_eq!(max_ranks(DataType::I8, ReduceOp::Sum), 15);
        assert_eq!(max_ranks(DataType::F32, ReduceOp::Prod), 10);
        assert_eq!(max_ranks(DataType::Bf16, ReduceOp::Max), 256);
        assert_eq!(max_ranks(DataType::F32, ReduceOp::Avg), 4096);
    }
}
