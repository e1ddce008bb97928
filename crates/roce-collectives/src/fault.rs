//! Whose fault an error is.

use std::fmt;

use crate::error::Error;

/// The side that has to act on an [`Error`].
///
/// ```
/// use roce_collectives::{Fault, Group, GroupConfig};
///
/// let error = Group::join(GroupConfig::new(3, 2, "127.0.0.1:0")).unwrap_err();
/// assert_eq!(error.fault(), Fault::Caller, "ranks are 0 and 1");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// The caller's arguments or configuration.
    Caller,
    /// This host: its interfaces, rights, memory.
    Host,
    /// Another rank, its host, or the network to it.
    Peer,
    /// An earlier failure, which has ended the group.
    Earlier,
    /// The program itself, which gave up.
    Interrupt,
    /// A bug of this library.
    Library,
}

impl Error {
    /// Returns whose fault the error is.
    pub fn fault(&self) -> Fault {
        match self {
            Self::Config(_)
            | Self::Geometry(_)
            | Self::Operation(_)
            | Self::Buffer(_)
            | Self::Verbs(roce_verbs::Error::Misuse(_)) => Fault::Caller,
            Self::Listen { .. }
            | Self::InterfaceDown { .. }
            | Self::Verbs(_)
            | Self::Work(_)
            | Self::System(_) => Fault::Host,
            Self::NoRoot { .. }
            | Self::Refused { .. }
            | Self::RankFailed { .. }
            | Self::Neighbour { .. }
            | Self::Mismatch { .. }
            | Self::Left { .. }
            | Self::Late { .. }
            | Self::Bootstrap { .. }
            | Self::Message(_) => Fault::Peer,
            Self::Ended(_) => Fault::Earlier,
            Self::Interrupted => Fault::Interrupt,
            Self::Internal(_) => Fault::Library,
        }
    }

    /// Returns the rank that failed, if the error names one.
    pub fn failed_rank(&self) -> Option<u32> {
        match self {
            Self::RankFailed { rank, .. }
            | Self::Neighbour { rank, .. }
            | Self::Mismatch { rank, .. }
            | Self::Left { rank, .. }
            | Self::InterfaceDown { rank, .. } => Some(*rank),
            _ => None,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Caller => "the caller",
            Self::Host => "this host",
            Self::Peer => "another rank or the network",
            Self::Earlier => "an earlier failure",
            Self::Interrupt => "the program, which gave up",
            Self::Library => "the library",
        })
    }
}
