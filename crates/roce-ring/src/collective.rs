//! The collectives.

use std::fmt;
use std::str::FromStr;

/// A collective operation of a group of ranks.
///
/// ```
/// use roce_ring::Collective;
///
/// assert_eq!("allreduce".parse(), Ok(Collective::AllReduce));
/// assert_eq!(Collective::AllReduce.code(), 0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Collective {
    /// Every rank ends with the reduction of all inputs.
    AllReduce = 0,
    /// Rank r ends with chunk r of the reduction of all inputs.
    ReduceScatter = 1,
    /// Every rank ends with all inputs, concatenated.
    AllGather = 2,
    /// Every rank ends with the root's input.
    Broadcast = 3,
    /// The root ends with the reduction of all inputs.
    Reduce = 4,
    /// No rank continues before all have arrived.
    Barrier = 5,
}

impl Collective {
    /// All collectives, in the order of their codes.
    pub const ALL: [Self; 6] = [
        Self::AllReduce,
        Self::ReduceScatter,
        Self::AllGather,
        Self::Broadcast,
        Self::Reduce,
        Self::Barrier,
    ];

    /// Returns the collective's code in messages.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Returns the name: one word in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "allreduce",
            Self::ReduceScatter => "reducescatter",
            Self::AllGather => "allgather",
            Self::Broadcast => "broadcast",
            Self::Reduce => "reduce",
            Self::Barrier => "barrier",
        }
    }

    /// Returns true if the collective reduces values with an operator.
    pub const fn reduces(self) -> bool {
        matches!(self, Self::AllReduce | Self::ReduceScatter | Self::Reduce)
    }

    /// Returns true if the collective has a root.
    pub const fn has_root(self) -> bool {
        matches!(self, Self::Broadcast | Self::Reduce)
    }
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
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
