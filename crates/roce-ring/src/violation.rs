//! Errors of a neighbour and of the caller.

use crate::{Immediate, OpTag, OperationError, Side};

/// A violation of the protocol by a neighbour. The group cannot continue.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the {side} rank broke the ring protocol on lane {lane}: {kind}")]
pub struct Violation {
    /// The neighbour.
    pub side: Side,
    /// The lane.
    pub lane: u32,
    /// The kind of violation.
    pub kind: ViolationKind,
}

/// The ways in which a neighbour can violate the protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ViolationKind {
    /// The neighbour is in another operation.
    #[error(
        "its message belongs to operation {found}, this rank is in operation {expected} (mod \
         16384); call the same operations in the same order on all ranks"
    )]
    WrongNumber {
        /// This rank's operation number mod 2^14.
        expected: u16,
        /// The neighbour's operation number mod 2^14.
        found: u16,
    },
    /// The neighbour called another operation.
    #[error(
        "operation {number} has signature {found:#06x} there and {expected:#06x} here; call it \
         with the same collective, type, operator, root and count on all ranks"
    )]
    WrongSignature {
        /// The operation's number mod 2^14.
        number: u16,
        /// This rank's signature.
        expected: u16,
        /// The neighbour's signature.
        found: u16,
    },
    /// A message has another length than in the plan.
    #[error("a message has {found} bytes where the plan has {expected}")]
    WrongLength {
        /// The length in the plan, in bytes.
        expected: u64,
        /// The length received, in bytes.
        found: u64,
    },
    /// A message has another kind than in the plan, or came from the wrong side.
    #[error("unexpected message: {found:?}")]
    WrongKind {
        /// The message received.
        found: Immediate,
    },
    /// The neighbour sent data without credit.
    #[error("it sent more messages than its credit of {slots}")]
    BeyondCredit {
        /// The slots of the lane.
        slots: u32,
    },
    /// A credit reports messages that were never sent, or no new ones.
    #[error("it reported {consumed} messages consumed (mod 2^30), after {reported} of {sent}")]
    WrongCredit {
        /// The reported number of consumed messages, mod 2^30.
        consumed: u32,
        /// The number reported before.
        reported: u64,
        /// The number of messages sent.
        sent: u64,
    },
    /// A window was announced before the previous one was used.
    #[error("it announced a window before the last one was used")]
    WindowTwice,
    /// A window is too short for the result.
    #[error("its window of {found} bytes at {address:#x} cannot hold the {expected} of the result")]
    WindowTooShort {
        /// The address of the window.
        address: u64,
        /// The length of the result in bytes.
        expected: u64,
        /// The length of the window in bytes.
        found: u64,
    },
}

impl ViolationKind {
    /// Returns the violation of a message tagged `found` where `expected` is right, if any.
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

/// A misuse of the machine by its caller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UsageError {
    /// An operation is active.
    #[error("an operation is active; finish it before starting the next")]
    Busy,
    /// A neighbour violated the protocol before.
    #[error("the group has ended, since a neighbour violated the protocol: {0}")]
    Over(Violation),
    /// The operation is impossible.
    #[error(transparent)]
    Operation(#[from] OperationError),
    /// The lane does not exist.
    #[error("there is no lane {0}")]
    UnknownLane(u32),
    /// The id was never posted, or has completed before.
    #[error("no outstanding send with id {0:#x}; pass each id of a Write, Credit or Announce once")]
    UnknownId(u64),
}

/// An error of a neighbour or of the caller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MachineError {
    /// A neighbour violated the protocol.
    #[error(transparent)]
    Peer(#[from] Violation),
    /// The caller misused the machine.
    #[error(transparent)]
    Caller(#[from] UsageError),
}
