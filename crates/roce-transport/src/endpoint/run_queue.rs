//! Whose turn it is to send.

use std::collections::VecDeque;

/// Whoever may have something to send, each at most once, in order of their turns.
#[derive(Debug, Default)]
pub(crate) struct RunQueue {
    queue: VecDeque<Runnable>,
    /// Whether the queue pair in slot *i* is in `turns`, and whether gate *i* is.
    is_queued: [Vec<bool>; 2],
}

/// Whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Runnable {
    /// The queue pair in this slot.
    QueuePair(usize),
    /// The queue pair in this slot, whose turn is not over; never in a list.
    Continue(usize),
    /// Who stands first in the line before this gate.
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
    /// Puts `turn` at the end unless it is in the list already.
    pub(crate) fn push(&mut self, runnable: Runnable) {
        let (kind, index) = runnable.place();
        let is_queued = &mut self.is_queued[kind];
        if is_queued.len() <= index {
            is_queued.resize(index + 1, false);
        }
        if !is_queued[index] {
            is_queued[index] = true;
            self.queue.push_back(runnable);
        }
    }

    /// Is it nobody's turn?
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whose turn it is, if nobody else waits.
    pub(crate) fn only(&self) -> Option<Runnable> {
        self.queue.front().copied().filter(|_| self.queue.len() == 1)
    }

    /// The slots of the queue pairs in it.
    pub(crate) fn queue_pairs(&self) -> impl Iterator<Item = usize> {
        self.queue.iter().filter_map(|runnable| match *runnable {
            Runnable::QueuePair(slot) | Runnable::Continue(slot) => Some(slot),
            Runnable::PeerWaiters(_) => None,
        })
    }

    /// Takes whoever waits longest.
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
    fn everyone_has_one_turn_before_anyone_has_two() {
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
