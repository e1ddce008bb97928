//! The shards that the calling thread polls.
//!
//! A thread's list has numbers and owns nothing, so that nothing has to run when the thread ends: the C library needs
//! memory to note such a function, and ends a process that has none.

use std::cell::Cell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::shard::Shard;
use super::shard_number::ShardNumber;
use crate::fork::PerProcess;

/// The shards of this process.
static SHARDS: PerProcess<Mutex<Numbered>> = PerProcess::new();

type Numbered = Vec<(ShardNumber, Weak<Shard>)>;

/// Most shards of a thread's list.
const MAX_POLLED: usize = 16;

thread_local! {
    /// Shards of empty polls of the calling thread since it last blocked; zeros behind them.
    static POLLED: Cell<[ShardNumber; MAX_POLLED]> = const { Cell::new([0; MAX_POLLED]) };
}

const _: () = assert!(!std::mem::needs_drop::<Cell<[ShardNumber; MAX_POLLED]>>());

/// Makes a shard one of those that [`take`] returns.
pub(super) fn register(shard: &Arc<Shard>) {
    let mut all = shards();
    all.retain(|(_, shard)| shard.strong_count() > 0);
    all.push((shard.polled_as, Arc::downgrade(shard)));
}

/// Notes that the calling thread has polled a shard. Returns false if it has before, since [`take`], or if its list is
/// full.
pub(super) fn note(number: ShardNumber) -> bool {
    let mut polled = POLLED.get();
    match polled.iter_mut().find(|it| **it == 0 || **it == number) {
        Some(free) if *free == 0 => *free = number,
        _ => return false,
    }
    POLLED.set(polled);
    true
}

/// Empties the calling thread's list, and returns the shards that were in it and still exist.
pub(super) fn take() -> Vec<Arc<Shard>> {
    let polled = POLLED.replace([0; MAX_POLLED]);
    let all = shards();
    let is_polled = |(number, _): &&(ShardNumber, Weak<Shard>)| polled.contains(number);
    all.iter().filter(is_polled).filter_map(|(_, shard)| shard.upgrade()).collect()
}

fn shards() -> MutexGuard<'static, Numbered> {
    SHARDS.get().lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_is_noted_once_and_a_full_list_takes_no_more() {
        assert!(note(1) && note(2));
        assert!(!note(1) && !note(2));
        assert!((3..=MAX_POLLED as u64).all(note));
        assert!(!note(MAX_POLLED as u64 + 1));
        assert_eq!(take().len(), 0);
        assert!(note(1));
    }
}
