//! Errors of a ring.

use roce_ring::{GeometryError, OperationError, UsageError, Violation};
use roce_transport::PostError;
use thiserror::Error;

/// Error of a ring.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RingError {
    /// The settings are invalid.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// The operation is invalid.
    #[error(transparent)]
    Operation(#[from] OperationError),
    /// A buffer exceeds the address space.
    #[error("a buffer of {bytes} bytes exceeds the address space; use fewer bytes")]
    TooLarge {
        /// Size in bytes.
        bytes: u64,
    },
    /// The machine was used wrongly: an error in this crate.
    #[error("rank {rank}: {why}")]
    UsageError {
        /// Rank.
        rank: usize,
        /// Cause.
        why: UsageError,
    },
    /// A neighbour broke the protocol.
    #[error("rank {rank}: {why}")]
    Violation {
        /// Rank that detected it.
        rank: usize,
        /// Cause.
        why: Violation,
    },
    /// The engine refused a work request.
    #[error("rank {rank}: {why}")]
    Post {
        /// Rank.
        rank: usize,
        /// Error of the engine.
        why: PostError,
    },
    /// A work request failed.
    #[error("rank {rank}: work request failed with {status}")]
    Failed {
        /// Rank.
        rank: usize,
        /// Status.
        status: roce_transport::CompletionStatus,
    },
    /// No event is pending, but ranks are not done.
    #[error("the ring stopped; {waiting} ranks are not done")]
    Stopped {
        /// Number of ranks that are not done.
        waiting: usize,
    },
}
