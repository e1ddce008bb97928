//! Who waits, in the order in which they came.

use std::collections::VecDeque;

/// A line that anybody may leave in no time, wherever they stand.
///
/// Who leaves from the middle leaves a gap, which is gone once the line has moved on to it: so
/// many queue pairs destroyed while they wait cost no more than as many destroyed elsewhere.
#[derive(Debug, Default)]
pub(crate) struct WaitQueue {
    /// Slots of queue pairs, and gaps; neither end is a gap.
    entries: VecDeque<Option<usize>>,
    /// The place in front.
    front_ticket: u64,
}

/// Where somebody stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(u64);

impl WaitQueue {
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Joins the line at its end.
    pub(crate) fn push_back(&mut self, slot: usize) -> Ticket {
        self.entries.push_back(Some(slot));
        Ticket(self.front_ticket.wrapping_add(self.entries.len() as u64 - 1))
    }

    /// Goes in front of all others.
    pub(crate) fn push_front(&mut self, slot: usize) -> Ticket {
        self.entries.push_front(Some(slot));
        self.front_ticket = self.front_ticket.wrapping_sub(1);
        Ticket(self.front_ticket)
    }

    /// Returns the slot that [`pop`](Self::pop) would take.
    pub(crate) fn front(&self) -> Option<usize> {
        self.entries.front().copied().flatten()
    }

    /// Takes who waits longest.
    pub(crate) fn pop(&mut self) -> Option<usize> {
        let front = self.entries.front().copied().flatten();
        self.drop_front();
        self.trim();
        front
    }

    /// Leaves the line.
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
        fn who_stays_in_line_keeps_its_place(steps in prop::collection::vec((0..4, 0..8_usize), 0..200)) {
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
                // Gaps are where somebody stands behind them.
                prop_assert!(queue.entries.back().is_none_or(|it| it.is_some()));
            }
        }
    }

    #[test]
    fn nothing_is_kept_of_those_who_have_left() {
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
