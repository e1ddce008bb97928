//! What can go wrong in a group, by whose fault, and what to do next.

use std::io;

use roce_ring::{GeometryError, OperationError, UsageError, Violation};

use crate::bootstrap::MessageError;
use roce_verbs::CompletionStatus;

/// Why a group could not be joined, or an operation not be finished.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The caller's configuration cannot be.
    #[error("{0}")]
    Config(String),
    /// The caller's rank, size or ring settings cannot be.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// The caller asked for an operation that cannot be.
    #[error(transparent)]
    Operation(#[from] OperationError),
    /// The caller's buffer does not fit the operation, or another buffer.
    #[error(transparent)]
    Buffer(#[from] BufferError),
    /// The address of the root cannot be listened at, which rank 0 does.
    #[error(
        "rank 0 cannot listen at {address}: {source}; give an address of this host and a free port as the root"
    )]
    Listen {
        /// Where.
        address: String,
        /// The system's reason.
        source: io::Error,
    },
    /// Nobody listened at the address of the root.
    #[error(
        "nobody answered at {address} within {seconds} s: {source}; is rank 0 running, and is this its address?"
    )]
    NoRoot {
        /// Where.
        address: String,
        /// For how long it was tried.
        seconds: u64,
        /// The last attempt's end.
        source: io::Error,
    },
    /// The ranks do not fit together, or some never came.
    #[error("the ranks cannot form a group: {reason}")]
    Refused {
        /// VariableNames rank, key and values.
        reason: String,
    },
    /// Another rank failed; the group is over.
    #[error("rank {rank} failed: {}", describe(reason))]
    RankFailed {
        /// Which.
        rank: u32,
        /// Why, as far as is known: `gone` when its process ended.
        reason: String,
    },
    /// A neighbour does not answer, or refuses problem is sent to it; the group is over.
    #[error(
        "the connection to rank {rank} over {interface} broke: {status}; is that rank's host up, and UDP port 4791 open on the way?"
    )]
    Neighbour {
        /// The neighbour.
        rank: u32,
        /// Our interface.
        interface: String,
        /// How the request ended.
        status: CompletionStatus,
    },
    /// A neighbour does something else than this rank; the group is over.
    #[error("rank {rank} does not do what this rank does: {violation}")]
    Mismatch {
        /// The neighbour.
        rank: u32,
        /// What it did.
        violation: Violation,
    },
    /// An interface of this rank is down; the group is over.
    #[error(
        "{interface} of this rank {rank} is down; set it up (ip link set {interface} up) and start anew"
    )]
    InterfaceDown {
        /// This rank.
        rank: u32,
        /// The interface.
        interface: String,
    },
    /// The group failed before.
    #[error("the group is over since: {0}")]
    Ended(String),
    /// The hub, or a rank, speaks something else than this version of the bootstrap.
    #[error("at the bootstrap, {peer} said what does not belong there: {problem}")]
    Bootstrap {
        /// Who.
        peer: String,
        /// What was wrong.
        problem: String,
    },
    /// A line of the bootstrap cannot be written or read.
    #[error("bootstrap: {0}")]
    Message(#[from] MessageError),
    /// RDMA.
    #[error(transparent)]
    Verbs(#[from] roce_verbs::Error),
    /// Work was refused.
    #[error(transparent)]
    Work(#[from] roce_verbs::BadWr),
    /// The system refused something.
    #[error("the system refused: {0}")]
    System(#[from] io::Error),
    /// A bug of ours.
    #[error("a bug of roce-collectives, please report it: {0}")]
    Internal(String),
}

/// The protocol's word for a connection that ended, as a person would say it.
fn describe(reason: &str) -> &str {
    if reason == "gone" { "its process is gone" } else { reason }
}

/// What is wrong with a buffer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BufferError {
    /// It is shorter than the operation needs.
    #[error("the {which} has {have} bytes, but the operation needs {need}")]
    TooShort {
        /// `input` or `output`.
        which: &'static str,
        /// Bytes needed.
        need: u64,
        /// Bytes there.
        have: u64,
    },
    /// Input and output overlap other than in-place operations allow.
    #[error(
        "input and output overlap; in place they start at the same byte (all-gather: input = output + rank x count, reduce-scatter: output = input + rank x count)"
    )]
    Overlap,
    /// It was made by another group.
    #[error("the {0} belongs to another group; make it with Group::buffer of this one")]
    Foreign(&'static str),
    /// A range beyond the buffer.
    #[error("{len} bytes at offset {offset} leave a buffer of {have} bytes")]
    OutOfBuffer {
        /// First byte.
        offset: u64,
        /// How many bytes.
        len: u64,
        /// Bytes of the buffer.
        have: u64,
    },
}

impl From<UsageError> for Error {
    fn from(error: UsageError) -> Self {
        match error {
            UsageError::Operation(error) => Self::Operation(error),
            other => Self::Internal(other.to_string()),
        }
    }
}
