//! The errors of a group.

use std::io;
use std::time::Duration;

use roce_ring::{GeometryError, OperationError, UsageError, Violation};

use crate::message::MessageError;
use roce_verbs::CompletionStatus;

/// The failure to join a group or to finish an operation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The caller's configuration is invalid.
    #[error("{0}")]
    Config(String),
    /// The caller's rank, size or ring configuration is invalid.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// The operation is impossible.
    #[error(transparent)]
    Operation(#[from] OperationError),
    /// The caller's buffer does not fit the operation, or another buffer.
    #[error(transparent)]
    Buffer(#[from] BufferError),
    /// Rank 0 cannot listen on the address of the root.
    #[error(
        "rank 0 cannot listen at {address}: {source}; give an address of this host and a free port as the root"
    )]
    Listen {
        /// The address.
        address: String,
        /// The system's error.
        source: io::Error,
    },
    /// No bootstrap server listened on the address of the root.
    #[error(
        "no answer from {address} within {seconds} s: {source}; check that rank 0 runs and that this is its address"
    )]
    NoRoot {
        /// The address.
        address: String,
        /// The timeout in seconds.
        seconds: u64,
        /// The error of the last attempt.
        source: io::Error,
    },
    /// The configurations of the ranks differ, or a rank is missing.
    #[error("the ranks cannot form a group: {reason}")]
    Refused {
        /// The reason, with rank, key and values.
        reason: String,
    },
    /// Another rank failed; the group has ended.
    #[error("rank {rank} failed: {}", describe(reason))]
    RankFailed {
        /// The rank.
        rank: u32,
        /// The reason, if known: `gone` if its process ended.
        reason: String,
    },
    /// A neighbour does not respond or refuses a request; the group has ended.
    #[error(
        "the connection to rank {rank} over {interface} broke: {status}; check that its host is up and that UDP port 4791 is open on the path"
    )]
    Neighbour {
        /// The neighbour.
        rank: u32,
        /// This rank's interface.
        interface: String,
        /// The status of the failed request.
        status: CompletionStatus,
    },
    /// A neighbour violated the protocol; the group has ended.
    #[error("protocol mismatch with rank {rank}: {violation}")]
    Mismatch {
        /// The neighbour.
        rank: u32,
        /// The violation.
        violation: Violation,
    },
    /// Another rank left the group before an operation that this rank calls; the group has ended.
    #[error(
        "rank {rank} left the group after {operations} operations, but this rank calls operation {number} \
         (counted from 0); call the same operations on all ranks before they leave"
    )]
    Left {
        /// The rank that left.
        rank: u32,
        /// The number of operations that it called.
        operations: u64,
        /// This rank's operation, counted from 0.
        number: u64,
    },
    /// An operation, or leaving, was not done within its timeout, and it is not known for which rank this one
    /// waited; the group has ended.
    #[error(
        "operation {number} (counted from 0) was not done within {timeout:?}; see what the other ranks do"
    )]
    Late {
        /// This rank's operation, counted from 0.
        number: u64,
        /// The timeout.
        timeout: Duration,
    },
    /// An interface of this rank is down; the group has ended.
    #[error(
        "{interface} of this rank {rank} is down; set it up (ip link set {interface} up) and start again"
    )]
    InterfaceDown {
        /// This rank.
        rank: u32,
        /// The interface.
        interface: String,
    },
    /// The group failed before.
    #[error("the group has ended: {0}")]
    Ended(String),
    /// This rank's program gave up waiting: see [`Interrupt`](crate::Interrupt). The group has ended.
    #[error("interrupted by its program")]
    Interrupted,
    /// The bootstrap server or a rank sent an unexpected message.
    #[error("unexpected message of {peer} in the bootstrap: {problem}")]
    Bootstrap {
        /// The sender.
        peer: String,
        /// The problem.
        problem: String,
    },
    /// A message of the bootstrap is malformed.
    #[error("bootstrap: {0}")]
    Message(#[from] MessageError),
    /// An RDMA operation failed.
    #[error(transparent)]
    Verbs(#[from] roce_verbs::Error),
    /// A work request was refused.
    #[error(transparent)]
    Work(#[from] roce_verbs::BadWr),
    /// A system call failed.
    #[error("a system call failed: {0}")]
    System(#[from] io::Error),
    /// A bug of this crate.
    #[error("a bug in roce-collectives; please report it: {0}")]
    Internal(String),
}

/// Returns the reason, with the protocol's `gone` spelled out.
fn describe(reason: &str) -> &str {
    if reason == "gone" { "its process is gone" } else { reason }
}

/// A buffer that does not fit an operation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BufferError {
    /// The buffer is shorter than the operation needs.
    #[error("the {which} has {have} bytes, but the operation needs {need}")]
    TooShort {
        /// `input` or `output`.
        which: &'static str,
        /// The required length in bytes.
        need: u64,
        /// The length in bytes.
        have: u64,
    },
    /// Input and output overlap other than in-place operations allow.
    #[error(
        "input and output overlap; in place they start at the same byte (all-gather: input = output + rank x count, reduce-scatter: output = input + rank x count)"
    )]
    Overlap,
    /// The buffer belongs to another group.
    #[error("the {0} belongs to another group; make it with Group::buffer of this one")]
    Foreign(&'static str),
    /// The range exceeds the buffer.
    #[error("{len} bytes at offset {offset} exceed a buffer of {have} bytes")]
    OutOfBuffer {
        /// The offset of the range.
        offset: u64,
        /// The length of the range in bytes.
        len: u64,
        /// The length of the buffer in bytes.
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
