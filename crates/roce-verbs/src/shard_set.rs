//! Sets of shards, and those whose queue pairs complete in a queue.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};

/// Most shards of a device.
pub const MAX_SHARDS: usize = 8;

/// A set of shards of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShardMask(u8);

impl ShardMask {
    /// Returns the set of this bits, one for each number; that of the first shard if there is none.
    fn of(bits: u8) -> Self {
        Self(if bits == 0 { 1 } else { bits })
    }

    /// Returns the number of the only shard; `None` if there are several.
    #[inline]
    pub(crate) fn only(self) -> Option<usize> {
        self.0.is_power_of_two().then_some(self.0.trailing_zeros() as usize)
    }

    /// Returns the numbers of the shards.
    pub(crate) fn iter(self) -> impl Iterator<Item = usize> {
        (0..MAX_SHARDS).filter(move |number| self.0 & 1 << number != 0)
    }
}

/// A set of shards to which some are added.
#[derive(Debug, Default)]
pub(crate) struct GrowingShardSet(AtomicU8);

impl GrowingShardSet {
    /// Adds a shard.
    pub(crate) fn add(&self, shard: usize) {
        self.0.fetch_or(1 << shard, Ordering::Relaxed);
    }

    /// Returns the set; that of the first shard while it is empty.
    pub(crate) fn mask(&self) -> ShardMask {
        ShardMask::of(self.0.load(Ordering::Relaxed))
    }
}

/// The shards whose queue pairs complete in a queue.
#[derive(Debug)]
pub(crate) struct QueueShards {
    /// Number of its home.
    home: usize,
    /// Those with queue pairs; the home while there are none.
    mask: AtomicU8,
    /// Queue pairs of each shard.
    users: Mutex<[u32; MAX_SHARDS]>,
    /// Counts polls of several shards, which begin with another one each time.
    turn: AtomicU8,
    /// Shards that have not ended their queue pairs yet since the queue was overrun.
    overrun: AtomicU8,
}

impl QueueShards {
    /// Makes the set of a queue without queue pairs.
    pub(crate) fn new(home: usize) -> Self {
        Self {
            home,
            mask: AtomicU8::new(1 << home),
            users: Mutex::default(),
            turn: AtomicU8::new(0),
            overrun: AtomicU8::new(0),
        }
    }

    /// Returns the number of its home.
    pub(crate) fn home(&self) -> usize {
        self.home
    }

    /// Returns the shards that a poll drives.
    #[inline]
    pub(crate) fn mask(&self) -> ShardMask {
        ShardMask(self.mask.load(Ordering::SeqCst))
    }

    /// Returns the numbers of the shards, which begin with another one each time.
    pub(crate) fn next_turn(&self) -> impl Iterator<Item = usize> {
        let ShardMask(bits) = self.mask();
        let first = usize::from(self.turn.fetch_add(1, Ordering::Relaxed)) % MAX_SHARDS;
        let numbers = (0..MAX_SHARDS).map(move |step| (first + step) % MAX_SHARDS);
        numbers.filter(move |number| bits & 1 << number != 0)
    }

    /// Returns true if no queue pair of this shard completes in the queue.
    pub(crate) fn is_first_in(&self, shard: usize) -> bool {
        self.change(|users| users[shard] == 0)
    }

    /// Adds a queue pair of a shard.
    pub(crate) fn add(&self, shard: usize) {
        self.change(|users| users[shard] += 1);
    }

    /// Removes a queue pair of a shard.
    pub(crate) fn remove(&self, shard: usize) {
        self.change(|users| users[shard] = users[shard].saturating_sub(1));
    }

    fn change<T>(&self, change: impl FnOnce(&mut [u32; MAX_SHARDS]) -> T) -> T {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut users);
        let bits = users.iter().enumerate().filter(|(_, count)| **count > 0);
        let bits = bits.fold(0, |bits, (number, _)| bits | 1 << number);
        self.mask.store(if bits == 0 { 1 << self.home } else { bits }, Ordering::SeqCst);
        result
    }

    /// Notes that a completion of this shard has overrun the queue: the other shards end their
    /// queue pairs, each with its next completion.
    pub(crate) fn note_overrun(&self, shard: usize) {
        let ShardMask(bits) = self.mask();
        self.overrun.fetch_or(bits & !(1 << shard), Ordering::Relaxed);
    }

    /// Returns true once for each shard that is to end its queue pairs since the queue was overrun.
    #[inline]
    pub(crate) fn take_overrun(&self, shard: usize) -> bool {
        self.overrun.load(Ordering::Relaxed) != 0
            && self.overrun.fetch_and(!(1 << shard), Ordering::Relaxed) & 1 << shard != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(set: &QueueShards) -> Vec<usize> {
        set.mask().iter().collect()
    }

    #[test]
    fn a_poll_drives_the_shards_of_queue_pairs_or_else_the_home() {
        let set = QueueShards::new(2);
        assert_eq!((numbers(&set), set.mask().only()), (vec![2], Some(2)));
        set.add(0);
        assert_eq!(numbers(&set), [0], "no queue pair is in the home");
        set.add(7);
        set.add(7);
        set.remove(0);
        assert_eq!((numbers(&set), set.mask().only()), (vec![7], Some(7)));
        set.add(2);
        assert_eq!((numbers(&set), set.mask().only()), (vec![2, 7], None));
        for shard in [7, 7, 2] {
            set.remove(shard);
        }
        assert_eq!(numbers(&set), [2]);
    }

    #[test]
    fn polls_of_several_shards_begin_with_each_of_them() {
        let set = QueueShards::new(0);
        [0, 3, 5].into_iter().for_each(|shard| set.add(shard));
        let firsts: Vec<_> = (0..MAX_SHARDS)
            .map(|_| {
                let turn: Vec<_> = set.next_turn().collect();
                assert_eq!(turn.len(), 3);
                turn[0]
            })
            .collect();
        assert!([0, 3, 5].iter().all(|shard| firsts.contains(shard)), "{firsts:?}");
    }

    #[test]
    fn an_overrun_reaches_each_other_shard_once() {
        let set = QueueShards::new(0);
        [0, 3, 5].into_iter().for_each(|shard| set.add(shard));
        set.note_overrun(3);
        assert!(!set.take_overrun(3));
        assert!(set.take_overrun(5) && !set.take_overrun(5));
        assert!(set.take_overrun(0) && !set.take_overrun(0));
    }

    #[test]
    fn a_growing_set_is_that_of_the_first_shard_at_first() {
        let set = GrowingShardSet::default();
        assert_eq!(set.mask().only(), Some(0));
        set.add(4);
        assert_eq!(set.mask().only(), Some(4));
        set.add(1);
        assert_eq!(set.mask().iter().collect::<Vec<_>>(), [1, 4]);
    }
}
