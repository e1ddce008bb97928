//! The operators of reductions.

use std::str::FromStr;

use crate::named_values::named_values;

named_values! {
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
    pub enum ReduceOp {
        /// Left plus right.
        Sum = 0, "sum";
        /// Left times right.
        Prod = 1, "prod";
        /// The larger value; a number beats a NaN, and the left of two equal values stays.
        Max = 2, "max";
        /// The smaller value; a number beats a NaN, and the left of two equal values stays.
        Min = 3, "min";
        /// The sum over all ranks, divided by their number; integers truncate toward zero.
        Avg = 4, "avg";
    }
    /// Returns the operator's code in messages, which is NCCL's.
    code;
    /// Returns the name that nccl-tests prints.
    name;
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
