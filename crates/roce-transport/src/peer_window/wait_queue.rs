//! A FIFO of queue pairs that wait for a peer window.

use alloc::collections::VecDeque;

/// A FIFO from which any entry can be cancelled in constant time.
///
/// A cancelled entry in the middle leaves a gap, which goes when the queue has moved on to it.
#[derive(Debug, Default)]
pub(crate) struct WaitQueue {
    /// Slots of queue pairs, and gaps; neither end is a gap.
    entries: VecDeque<Option<usize>>,
    /// Ticket of the first entry.
    front_ticket: u64,
}

/// Position of a queue pair in a [`WaitQueue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(u64);

impl WaitQueue {
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds a queue pair at the end.
    pub(crate) fn push_back(&mut self, slot: usize) -> Ticket {
        self.entries.push_back(Some(slot));
        Ticket(self.front_ticket.wrapping_add(self.entries.len() as u64 - 1))
    }

    /// Adds a queue pair in front of all others.
    pub(crate) fn push_front(&mut self, slot: usize) -> Ticket {
        self.entries.push_front(Some(slot));
        self.front_ticket = self.front_ticket.wrapping_sub(1);
        Ticket(self.front_ticket)
    }

    /// Returns the slot that [`pop`](Self::pop) would take.
    pub(crate) fn front(&self) -> Option<usize> {
        self.entries.front().copied().flatten()
    }

    /// Takes the queue pair that waits longest.
    pub(crate) fn pop(&mut self) -> Option<usize> {
        let front = self.entries.front().copied().flatten();
        self.drop_front();
        self.trim();
        front
    }

    /// Removes the queue pair with this ticket.
    pub(crate) fn cancel(&mut self, ticket: Ticket) {
        let index = usize::try_from(ticket.0.wrapping_sub(self.front_ticket));
        if let Some(slot) = index.ok().and_then(|index| self.entries.get_mut(index)) {
            *slot = None;
        }
        self.trim();
    }

    fn drop_front(&mut self) {
        if self.entries.pop_front().is_some() {
            self.front_ticket = self.front_ticket.wrapping_add(1);
        }
    }

    fn trim(&mut self) {
        while let Some(None) = self.entries.front() {
            self.drop_front();
        }
        while let Some(None) = self.entries.back() {
            self.entries.pop_back();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn queue_pairs_that_stay_keep_their_order(steps in prop::collection::vec((0..4, 0..8_usize), 0..200)) {
            let (mut queue, mut expected) = (WaitQueue::default(), VecDeque::<(usize, Ticket)>::new());
            for (slot, (what, which)) in steps.into_iter().enumerate() {
                match what {
                    0 => expected.push_back((slot, queue.push_back(slot))),
                    1 => expected.push_front((slot, queue.push_front(slot))),
                    2 => prop_assert_eq!(queue.pop(), expected.pop_front().map(|it| it.0)),
                    _ => {
                        if which < expected.len()
                            && let Some((_, ticket)) = expected.remove(which)
                        {
                            queue.cancel(ticket);
                        }
                    }
                }
                prop_assert_eq!(queue.is_empty(), expected.is_empty());
                // Gaps are only in front of other entries.
                prop_assert!(queue.entries.back().is_none_or(|it| it.is_some()));
            }
        }
    }

    #[test]
    fn nothing_is_kept_of_cancelled_entries() {
        let mut queue = WaitQueue::default();
        let entries: Vec<_> = (0..100).map(|slot| queue.push_back(slot)).collect();
        entries
            .iter()
            .step_by(2)
            .chain(entries.iter().skip(1).step_by(2))
            .for_each(|it| queue.cancel(*it));
        assert_eq!((queue.is_empty(), queue.entries.len()), (true, 0));
    }
}
