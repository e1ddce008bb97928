//! The operators of reductions.

use std::fmt;
use std::str::FromStr;

/// An operator that reduces two values to one.
///
/// Integers wrap around; floats round at every step. An average is a sum that the rank with the
/// final elements divides once.
///
/// ```
/// use roce_ring::ReduceOp;
///
/// assert_eq!("avg".parse(), Ok(ReduceOp::Avg));
/// assert_eq!((ReduceOp::Avg.code(), ReduceOp::Avg.name()), (4, "avg"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReduceOp {
    /// Left plus right.
    Sum = 0,
    /// Left times right.
    Prod = 1,
    /// The larger value; a number beats a NaN, and the left of two equal values stays.
    Max = 2,
    /// The smaller value; a number beats a NaN, and the left of two equal values stays.
    Min = 3,
    /// The sum over all ranks, divided by their number; integers truncate toward zero.
    Avg = 4,
}

impl ReduceOp {
    /// All operators, in the order of their codes.
    pub const ALL: [Self; 5] = [Self::Sum, Self::Prod, Self::Max, Self::Min, Self::Avg];

    /// Returns the operator's code in messages, which is NCCL's.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Returns the name that nccl-tests prints.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Prod => "prod",
            Self::Max => "max",
            Self::Min => "min",
            Self::Avg => "avg",
        }
    }
}

impl fmt::Display for ReduceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for ReduceOp {
    type Err = UnknownReduceOp;

    fn from_str(text: &str) -> Result<Self, UnknownReduceOp> {
        let found = Self::ALL.into_iter().find(|op| op.name() == text);
        found.ok_or_else(|| UnknownReduceOp(text.to_owned()))
    }
}

/// The name of no operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no operator {0:?}; use sum, prod, max, min or avg")]
pub struct UnknownReduceOp(pub String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operator_is_found_by_its_name_and_at_its_code() {
        for (code, op) in ReduceOp::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(op.code()), code);
            assert_eq!(op.name().parse(), Ok(op));
        }
        assert_eq!("xor".parse::<ReduceOp>(), Err(UnknownReduceOp("xor".into())));
    }
}
