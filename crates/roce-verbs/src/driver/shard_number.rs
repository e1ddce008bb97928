//! Numbers of shards.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that no other shard of this process has; not 0.
pub(super) type ShardNumber = u64;

/// Returns the number of a new shard.
pub(super) fn next() -> ShardNumber {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}
