//! Whose turn it is to send.

use std::collections::VecDeque;

/// Whoever may have something to send, each at most once, in order of their turns.
#[derive(Debug, Default)]
pub(crate) struct ReadyList {
    turns: VecDeque<Turn>,
    /// Whether the queue pair in slot *i* is in `turns`, and whether gate *i* is.
    is_in: [Vec<bool>; 2],
}

/// Whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The queue pair in this slot.
    QueuePair(usize),
    /// The queue pair in this slot, whose turn is not over; never in a list.
    GoesOn(usize),
    /// Who stands first in the line before this gate.
    Line(usize),
}

impl Turn {
    const fn place(self) -> (usize, usize) {
        match self {
            Self::QueuePair(slot) | Self::GoesOn(slot) => (0, slot),
            Self::Line(gate) => (1, gate),
        }
    }
}

impl ReadyList {
    /// Puts `turn` at the end unless it is in the list already.
    pub(crate) fn push(&mut self, turn: Turn) {
        let (kind, index) = turn.place();
        let is_in = &mut self.is_in[kind];
        if is_in.len() <= index {
            is_in.resize(index + 1, false);
        }
        if !is_in[index] {
            is_in[index] = true;
            self.turns.push_back(turn);
        }
    }

    /// Is it nobody's turn?
    pub(crate) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// Whose turn it is, if nobody else waits.
    pub(crate) fn only(&self) -> Option<Turn> {
        self.turns.front().copied().filter(|_| self.turns.len() == 1)
    }

    /// The slots of the queue pairs in it.
    pub(crate) fn queue_pairs(&self) -> impl Iterator<Item = usize> {
        self.turns.iter().filter_map(|turn| match *turn {
            Turn::QueuePair(slot) | Turn::GoesOn(slot) => Some(slot),
            Turn::Line(_) => None,
        })
    }

    /// Takes whoever waits longest.
    pub(crate) fn pop(&mut self) -> Option<Turn> {
        let turn = self.turns.pop_front()?;
        let (kind, index) = turn.place();
        self.is_in[kind][index] = false;
        Some(turn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everyone_has_one_turn_before_anyone_has_two() {
        let mut ready = ReadyList::default();
        let [a, b, c] = [Turn::QueuePair(4), Turn::Line(4), Turn::QueuePair(2)];
        for turn in [a, b, a, c, b] {
            ready.push(turn);
        }
        let first = ready.pop().unwrap();
        ready.push(first);
        let order: Vec<_> = std::iter::from_fn(|| ready.pop()).collect();
        assert_eq!((first, order), (a, vec![b, c, a]));
    }
}
