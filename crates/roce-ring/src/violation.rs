//! What a neighbour, or the caller, did wrong.

use std::fmt;

use crate::{Immediate, OpTag, OperationError};

/// A neighbour's direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The rank before us in the ring.
    Previous,
    /// The rank behind us in the ring.
    Next,
}

impl Side {
    /// The other direction.
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

/// A neighbour broke the protocol. The group cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the {side} rank broke the ring protocol on lane {lane}: {kind}")]
pub struct Violation {
    /// Which neighbour.
    pub side: Side,
    /// On which lane.
    pub lane: u32,
    /// What it did.
    pub kind: ViolationKind,
}

/// How a neighbour broke the protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ViolationKind {
    /// It is in another operation than we are.
    #[error(
        "its message belongs to operation {found}, ours is operation {expected} (mod 16384); do \
         all ranks call the same operations in the same order?"
    )]
    WrongNumber {
        /// Our operation's number mod 2^14.
        expected: u16,
        /// Its operation's number mod 2^14.
        found: u16,
    },
    /// It called something else than we did.
    #[error(
        "operation {number} has signature {found:#06x} there and {expected:#06x} here; do all \
         ranks call it with the same collective, type, operator, root and count?"
    )]
    WrongSignature {
        /// The operation's number mod 2^14.
        number: u16,
        /// Our signature.
        expected: u16,
        /// Its signature.
        found: u16,
    },
    /// A message of another length than the plan says.
    #[error("a message of {found} bytes came where the plan has one of {expected}")]
    WrongLength {
        /// Bytes by our plan.
        expected: u64,
        /// Bytes that came.
        found: u64,
    },
    /// A message of another kind than the plan says, or of one that does not travel this way.
    #[error("a message came that is not meant here: {found:?}")]
    WrongKind {
        /// What came.
        found: Immediate,
    },
    /// Data without credit.
    #[error("it sent more than the {slots} messages that it had credit for")]
    BeyondCredit {
        /// Slots of the lane.
        slots: u32,
    },
    /// A credit for messages that were never sent, or one that reports nothing.
    #[error("it reported {consumed} messages consumed (mod 2^30), after {reported} of {sent}")]
    WrongCredit {
        /// What it reported, mod 2^30.
        consumed: u32,
        /// What it had reported before.
        reported: u64,
        /// What was sent.
        sent: u64,
    },
    /// A second window before the first was used.
    #[error("it announced a window before the last one was used")]
    WindowTwice,
    /// A window that cannot hold the result.
    #[error("its window of {found} bytes at {address:#x} cannot hold the {expected} of the result")]
    WindowTooShort {
        /// The window's address.
        address: u64,
        /// Bytes of the result.
        expected: u64,
        /// Bytes of the window.
        found: u64,
    },
}

impl ViolationKind {
    /// The breach, if any, in a message labelled `found` where `expected` is right.
    pub(crate) fn of_tag(expected: OpTag, found: OpTag) -> Option<Self> {
        if found.number != expected.number {
            Some(Self::WrongNumber { expected: expected.number, found: found.number })
        } else if found.signature != expected.signature {
            let number = expected.number;
            let (expected, found) = (expected.signature, found.signature);
            Some(Self::WrongSignature { number, expected, found })
        } else {
            None
        }
    }
}

/// The caller used the machine wrongly.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UsageError {
    /// An operation is under way.
    #[error("an operation is under way; finish it before starting the next")]
    Busy,
    /// A neighbour broke the protocol before.
    #[error("the group is over, since a neighbour broke the protocol: {0}")]
    Over(Violation),
    /// The operation cannot be.
    #[error(transparent)]
    Operation(#[from] OperationError),
    /// A lane that does not exist.
    #[error("there is no lane {0}")]
    UnknownLane(u32),
    /// A completion of something that was never sent, or completed before.
    #[error(
        "nothing with id {0:#x} is under way; hand in the id of a Write, Credit or Announce, once"
    )]
    UnknownId(u64),
}

/// Whose fault it is that the machine cannot take what it was handed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MachineError {
    /// A neighbour's.
    #[error(transparent)]
    Peer(#[from] Violation),
    /// The caller's.
    #[error(transparent)]
    Caller(#[from] UsageError),
}
