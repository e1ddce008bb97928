//! The two neighbours of a rank.

use std::fmt;

/// The direction of a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The rank before this one in the ring.
    Previous,
    /// The rank after this one in the ring.
    Next,
}

impl Side {
    /// Returns the other direction.
    pub const fn opposite(self) -> Self {
        match self {
            Self::Previous => Self::Next,
            Self::Next => Self::Previous,
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Previous => "previous",
            Self::Next => "next",
        })
    }
}
