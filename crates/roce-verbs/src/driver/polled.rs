//! The shards that the calling thread polls.
//!
//! A thread's list has addresses and owns nothing, so that nothing has to run when the thread ends: the C library needs
//! memory to note such a function, and ends a process that has none.

use std::cell::Cell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::shard::Shard;
use crate::process::fork::PerProcess;

/// The shards of this process. While one is here its address is no other's.
static SHARDS: PerProcess<Mutex<Vec<Weak<Shard>>>> = PerProcess::new();

/// Most shards of a thread's list.
const MAX_POLLED: usize = 16;

thread_local! {
    /// Addresses of the shards of empty polls of the calling thread since it last blocked; zeros behind them. Only
    /// compared: that of a shard which is gone may be that of another, on which the thread then blocks, too.
    static POLLED: Cell<[usize; MAX_POLLED]> = const { Cell::new([0; MAX_POLLED]) };
}

const _: () = assert!(!std::mem::needs_drop::<Cell<[usize; MAX_POLLED]>>());

/// Makes a shard one of those that [`take`] returns.
pub(super) fn register(shard: &Arc<Shard>) {
    let mut all = shards();
    all.retain(|shard| shard.strong_count() > 0);
    all.push(Arc::downgrade(shard));
}

/// Notes that the calling thread has polled the shard at this address. Returns false if it has before, since [`take`],
/// or if its list is full.
pub(super) fn note(shard: *const Shard) -> bool {
    let mut polled = POLLED.get();
    match polled.iter_mut().find(|it| **it == 0 || **it == shard.addr()) {
        Some(free) if *free == 0 => *free = shard.addr(),
        _ => return false,
    }
    POLLED.set(polled);
    true
}

/// Empties the calling thread's list, and returns the shards that were in it and still exist.
pub(super) fn take() -> Vec<Arc<Shard>> {
    let polled = POLLED.replace([0; MAX_POLLED]);
    let is_polled = |shard: &&Weak<Shard>| polled.contains(&shard.as_ptr().addr());
    shards().iter().filter(is_polled).filter_map(Weak::upgrade).collect()
}

fn shards() -> MutexGuard<'static, Vec<Weak<Shard>>> {
    SHARDS.get().lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_is_noted_once_and_a_full_list_takes_no_more() {
        let note = |address: usize| note(std::ptr::without_provenance(address));
        assert!(note(1) && note(2));
        assert!(!note(1) && !note(2));
        assert!((3..=MAX_POLLED).all(note));
        assert!(!note(MAX_POLLED + 1));
        assert_eq!(take().len(), 0);
        assert!(note(1));
    }
}
