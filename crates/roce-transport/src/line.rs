//! Who waits, in the order in which they came.

use std::collections::VecDeque;

/// A line that anybody may leave in no time, wherever they stand.
///
/// Who leaves from the middle leaves a gap, which is gone once the line has moved on to it: so
/// many queue pairs destroyed while they wait cost no more than as many destroyed elsewhere.
#[derive(Debug, Default)]
pub(crate) struct Line {
    /// Slots of queue pairs, and gaps; neither end is a gap.
    places: VecDeque<Option<usize>>,
    /// The place in front.
    front: u64,
}

/// Where somebody stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place(u64);

impl Line {
    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Joins the line at its end.
    pub(crate) fn join(&mut self, slot: usize) -> Place {
        self.places.push_back(Some(slot));
        Place(self.front.wrapping_add(self.places.len() as u64 - 1))
    }

    /// Goes in front of all others.
    pub(crate) fn go_in_front(&mut self, slot: usize) -> Place {
        self.places.push_front(Some(slot));
        self.front = self.front.wrapping_sub(1);
        Place(self.front)
    }

    /// Returns the slot that [`pop`](Self::pop) would take.
    pub(crate) fn first(&self) -> Option<usize> {
        self.places.front().copied().flatten()
    }

    /// Takes who waits longest.
    pub(crate) fn pop(&mut self) -> Option<usize> {
        let first = self.places.front().copied().flatten();
        self.forget_front();
        self.trim();
        first
    }

    /// Leaves the line.
    pub(crate) fn leave(&mut self, place: Place) {
        let index = usize::try_from(place.0.wrapping_sub(self.front));
        if let Some(slot) = index.ok().and_then(|index| self.places.get_mut(index)) {
            *slot = None;
        }
        self.trim();
    }

    fn forget_front(&mut self) {
        if self.places.pop_front().is_some() {
            self.front = self.front.wrapping_add(1);
        }
    }

    fn trim(&mut self) {
        while let Some(None) = self.places.front() {
            self.forget_front();
        }
        while let Some(None) = self.places.back() {
            self.places.pop_back();
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
            let (mut line, mut expected) = (Line::default(), VecDeque::<(usize, Place)>::new());
            for (slot, (what, which)) in steps.into_iter().enumerate() {
                match what {
                    0 => expected.push_back((slot, line.join(slot))),
                    1 => expected.push_front((slot, line.go_in_front(slot))),
                    2 => prop_assert_eq!(line.pop(), expected.pop_front().map(|it| it.0)),
                    _ => {
                        if which < expected.len()
                            && let Some((_, place)) = expected.remove(which)
                        {
                            line.leave(place);
                        }
                    }
                }
                prop_assert_eq!(line.is_empty(), expected.is_empty());
                // Gaps are where somebody stands behind them.
                prop_assert!(line.places.back().is_none_or(|it| it.is_some()));
            }
        }
    }

    #[test]
    fn nothing_is_kept_of_those_who_have_left() {
        let mut line = Line::default();
        let places: Vec<_> = (0..100).map(|slot| line.join(slot)).collect();
        places
            .iter()
            .step_by(2)
            .chain(places.iter().skip(1).step_by(2))
            .for_each(|it| line.leave(*it));
        assert_eq!((line.is_empty(), line.places.len()), (true, 0));
    }
}
