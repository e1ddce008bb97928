//! Whose turn it is to send.

use std::collections::VecDeque;

/// Queue pairs that may have something to send, each at most once, in order of their turns.
#[derive(Debug, Default)]
pub(crate) struct ReadyList {
    turns: VecDeque<usize>,
    /// Whether slot *i* is in `turns`.
    is_in: Vec<bool>,
}

impl ReadyList {
    /// Puts `slot` at the end unless it is in the list already.
    pub(crate) fn push(&mut self, slot: usize) {
        if self.is_in.len() <= slot {
            self.is_in.resize(slot + 1, false);
        }
        if !self.is_in[slot] {
            self.is_in[slot] = true;
            self.turns.push_back(slot);
        }
    }

    /// Is it nobody's turn?
    pub(crate) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// Takes whoever waits longest.
    pub(crate) fn pop(&mut self) -> Option<usize> {
        let slot = self.turns.pop_front()?;
        self.is_in[slot] = false;
        Some(slot)
    }

    /// Takes `slot` out; O(length).
    pub(crate) fn remove(&mut self, slot: usize) {
        if self.is_in.get_mut(slot).is_some_and(core::mem::take) {
            self.turns.retain(|it| *it != slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everyone_has_one_turn_before_anyone_has_two() {
        let mut ready = ReadyList::default();
        for slot in [4, 1, 4, 2] {
            ready.push(slot);
        }
        let first = ready.pop().unwrap();
        ready.push(first);
        let order: Vec<_> = std::iter::from_fn(|| ready.pop()).collect();
        assert_eq!((first, order), (4, vec![1, 2, 4]));
    }

    #[test]
    fn who_is_removed_has_no_turn_and_may_come_again() {
        let mut ready = ReadyList::default();
        ready.push(1);
        ready.push(2);
        ready.remove(1);
        assert_eq!(ready.pop(), Some(2));
        ready.push(1);
        assert_eq!(ready.pop(), Some(1));
        assert_eq!(ready.pop(), None);
    }
}
