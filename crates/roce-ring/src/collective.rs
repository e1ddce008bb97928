//! The collectives.

use std::str::FromStr;

use crate::named_values::named_values;

named_values! {
    /// A collective operation of a group of ranks.
    ///
    /// ```
    /// use roce_ring::Collective;
    ///
    /// assert_eq!("allreduce".parse(), Ok(Collective::AllReduce));
    /// assert_eq!(Collective::AllReduce.code(), 0);
    /// ```
    pub enum Collective {
        /// Every rank ends with the reduction of all inputs.
        AllReduce = 0, "allreduce";
        /// Rank r ends with chunk r of the reduction of all inputs.
        ReduceScatter = 1, "reducescatter";
        /// Every rank ends with all inputs, concatenated.
        AllGather = 2, "allgather";
        /// Every rank ends with the root's input.
        Broadcast = 3, "broadcast";
        /// The root ends with the reduction of all inputs.
        Reduce = 4, "reduce";
        /// No rank continues before all have arrived.
        Barrier = 5, "barrier";
    }
    /// Returns the collective's code in messages.
    code;
    /// Returns the name: one word in lower case.
    name;
}

impl Collective {
    /// Returns true if the collective reduces values with an operator.
    pub const fn reduces(self) -> bool {
        matches!(self, Self::AllReduce | Self::ReduceScatter | Self::Reduce)
    }

    /// Returns true if the collective has a root.
    pub const fn has_root(self) -> bool {
        matches!(self, Self::Broadcast | Self::Reduce)
    }
}

impl FromStr for Collective {
    type Err = UnknownCollective;

    /// Parses a name, also with a hyphen or an underscore between the words.
    fn from_str(text: &str) -> Result<Self, UnknownCollective> {
        Self::ALL
            .into_iter()
            .find(|collective| text.replace(['-', '_'], "") == collective.name())
            .ok_or_else(|| UnknownCollective(text.to_owned()))
    }
}

/// The name of no collective.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no collective {0:?}; use allreduce, reducescatter, allgather, broadcast, reduce or \
     barrier"
)]
pub struct UnknownCollective(pub String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_collective_is_found_by_its_name_and_at_its_code() {
        for (code, collective) in Collective::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(collective.code()), code);
            assert_eq!(collective.name().parse(), Ok(collective));
        }
        assert_eq!("reduce-scatter".parse(), Ok(Collective::ReduceScatter));
        assert_eq!("alltoall".parse::<Collective>(), Err(UnknownCollective("alltoall".into())));
    }
}
