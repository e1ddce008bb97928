//! Attributes of shared receive queues.

use crate::PdHandle;

/// Attributes that a shared receive queue is created with; as `ibv_srq_init_attr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SrqInit {
    /// Protection domain of the memory that receives name, whatever that of the queue pair is.
    pub pd: PdHandle,
    /// Receives that may be posted, 0..=[`QpCap::MAX_WR`](crate::QpCap::MAX_WR).
    pub max_wr: u32,
    /// SGEs of a receive, 0..=[`MAX_SGE`](crate::MAX_SGE).
    pub max_sge: u32,
}

/// Attributes of a shared receive queue: those that are `Some` are set; as `ibv_srq_attr` and its
/// mask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SrqAttributes {
    /// Receives that may be posted; at least as many as are.
    pub max_wr: Option<u32>,
    /// Arms [`AsyncEvent::SrqLimitReached`](crate::AsyncEvent::SrqLimitReached): it is raised once,
    /// as soon as fewer receives than this are posted. 0 disarms it.
    pub limit: Option<u32>,
}

/// Attributes of a shared receive queue, and what is posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SrqInfo {
    /// Attributes that it was created with; `max_wr` as it was modified last.
    pub init: SrqInit,
    /// Limit that is armed; 0 if none is, or if its event was raised.
    pub limit: u32,
    /// Receives posted that no queue pair has taken.
    pub posted: u32,
    /// Queue pairs that take from it.
    pub users: u32,
}
