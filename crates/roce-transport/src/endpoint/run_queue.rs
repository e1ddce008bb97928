//! Queue pairs that may have something to transmit.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// What may have something to transmit, each at most once, in the order of turns.
#[derive(Debug, Default)]
pub(crate) struct RunQueue {
    queue: VecDeque<Runnable>,
    /// Whether the queue pair in slot *i* is queued, and whether the waiters of peer *i* are.
    is_queued: [Vec<bool>; 2],
}

/// An entry of the run queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Runnable {
    /// The queue pair in this slot.
    QueuePair(usize),
    /// The queue pair in this slot, whose burst continues; never queued.
    Continue(usize),
    /// The first queue pair that waits for this peer.
    PeerWaiters(usize),
}

impl Runnable {
    const fn place(self) -> (usize, usize) {
        match self {
            Self::QueuePair(slot) | Self::Continue(slot) => (0, slot),
            Self::PeerWaiters(peer) => (1, peer),
        }
    }
}

impl RunQueue {
    /// Adds `runnable` at the end unless it is queued already.
    // Mostly it is: a call to find that costs a posted request 27 instructions.
    #[inline]
    pub(crate) fn push(&mut self, runnable: Runnable) {
        if !self.contains(runnable) {
            self.append(runnable);
        }
    }

    #[inline(never)]
    fn append(&mut self, runnable: Runnable) {
        let (kind, index) = runnable.place();
        let is_queued = &mut self.is_queued[kind];
        if is_queued.len() <= index {
            is_queued.resize(index + 1, false);
        }
        is_queued[index] = true;
        self.queue.push_back(runnable);
    }

    /// Returns true if `runnable` is queued.
    #[inline]
    pub(crate) fn contains(&self, runnable: Runnable) -> bool {
        let (kind, index) = runnable.place();
        self.is_queued[kind].get(index).is_some_and(|is_queued| *is_queued)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns the first entry if it is the only one.
    pub(crate) fn only(&self) -> Option<Runnable> {
        self.queue.front().copied().filter(|_| self.queue.len() == 1)
    }

    /// Slots of the queue pairs that are queued.
    pub(crate) fn queue_pairs(&self) -> impl Iterator<Item = usize> {
        self.queue.iter().filter_map(|runnable| match *runnable {
            Runnable::QueuePair(slot) | Runnable::Continue(slot) => Some(slot),
            Runnable::PeerWaiters(_) => None,
        })
    }

    /// Takes the first entry.
    pub(crate) fn pop(&mut self) -> Option<Runnable> {
        let runnable = self.queue.pop_front()?;
        let (kind, index) = runnable.place();
        self.is_queued[kind][index] = false;
        Some(runnable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_entry_has_one_turn_before_any_has_two() {
        let mut queue = RunQueue::default();
        let [a, b, c] = [Runnable::QueuePair(4), Runnable::PeerWaiters(4), Runnable::QueuePair(2)];
        for runnable in [a, b, a, c, b] {
            queue.push(runnable);
        }
        let first = queue.pop().unwrap();
        queue.push(first);
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!((first, order), (a, vec![b, c, a]));
    }
}
