//! Why a ring does not turn.

use roce_ring::{GeometryError, OperationError, UsageError, Violation};
use roce_transport::PostError;
use thiserror::Error;

/// Why a ring does not turn.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RingError {
    /// The settings make no ring.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// There is no such operation.
    #[error(transparent)]
    Operation(#[from] OperationError),
    /// The buffers are larger than this machine can address.
    #[error("a buffer of {bytes} bytes does not fit this machine; ask for less")]
    TooLarge {
        /// How large.
        bytes: u64,
    },
    /// The machine was used wrongly: a mistake of the lab's.
    #[error("rank {rank}: {why}")]
    UsageError {
        /// Which rank.
        rank: usize,
        /// What.
        why: UsageError,
    },
    /// A neighbour broke the protocol.
    #[error("rank {rank}: {why}")]
    Violation {
        /// Which rank noticed.
        rank: usize,
        /// What.
        why: Violation,
    },
    /// The engine refused to post.
    #[error("rank {rank}: {why}")]
    Post {
        /// Which rank.
        rank: usize,
        /// What it says.
        why: PostError,
    },
    /// Work failed.
    #[error("rank {rank}: work ended with {status}")]
    Failed {
        /// Which rank.
        rank: usize,
        /// How.
        status: roce_transport::CompletionStatus,
    },
    /// Nothing more will happen, and ranks are not done.
    #[error("the ring stands still with {waiting} ranks waiting")]
    StandsStill {
        /// How many.
        waiting: usize,
    },
}
