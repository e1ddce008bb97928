//! The timers of all queue pairs, soonest first.

use alloc::collections::BTreeSet;

use crate::Instant;

/// Deadlines of queue pairs or peers, soonest first; at most one entry for each.
///
/// A deadline that moves away (as an ACK timeout does with every ACK) leaves its entry where it is.
/// When that is due, the queue pair is checked and entered anew.
#[derive(Debug, Default)]
pub(crate) struct TimerQueue {
    entries: BTreeSet<(Instant, usize)>,
    /// Deadline of the first entry: read several times for each message.
    earliest: Option<Instant>,
}

impl TimerQueue {
    /// The earliest deadline.
    pub(crate) fn earliest(&self) -> Option<Instant> {
        self.earliest
    }

    /// Takes a slot whose deadline has passed.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<usize> {
        if self.earliest.is_none_or(|at| at > now) {
            return None;
        }
        let due = self.entries.pop_first();
        self.refresh_earliest();
        due.map(|(_, slot)| slot)
    }

    /// Enters `slot` by `wanted` at the latest. `entered` is the deadline of its entry, which the
    /// caller keeps.
    // Mostly there is nothing to do: a call to find that costs a received packet 25 instructions.
    #[inline]
    pub(crate) fn set(
        &mut self,
        slot: usize,
        entered: &mut Option<Instant>,
        wanted: Option<Instant>,
    ) {
        let Some(wanted) = wanted else { return };
        if entered.is_none_or(|at| at > wanted) {
            self.enter(slot, entered, wanted);
        }
    }

    #[inline(never)]
    fn enter(&mut self, slot: usize, entered: &mut Option<Instant>, wanted: Instant) {
        if let Some(at) = *entered {
            self.entries.remove(&(at, slot));
        }
        self.entries.insert((wanted, slot));
        self.refresh_earliest();
        *entered = Some(wanted);
    }

    /// Removes the entry of `slot`.
    pub(crate) fn forget(&mut self, slot: usize, entered: &mut Option<Instant>) {
        if let Some(at) = entered.take() {
            self.entries.remove(&(at, slot));
            self.refresh_earliest();
        }
    }

    fn refresh_earliest(&mut self) {
        self.earliest = self.entries.first().map(|(at, _)| *at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    #[test]
    fn a_deadline_that_moves_away_is_not_touched_and_one_that_comes_nearer_is() {
        let (mut alarm, mut entered) = (TimerQueue::default(), None);
        alarm.set(3, &mut entered, Some(at(10)));
        alarm.set(3, &mut entered, Some(at(20)));
        assert_eq!((alarm.earliest(), entered), (Some(at(10)), Some(at(10))));
        alarm.set(3, &mut entered, Some(at(5)));
        assert_eq!(alarm.take_due(at(5)), Some(3));
        assert_eq!(alarm.take_due(at(100)), None, "one entry for each queue pair");
    }

    #[test]
    fn a_forgotten_queue_pair_never_wakes() {
        let (mut alarm, mut entered) = (TimerQueue::default(), None);
        alarm.set(3, &mut entered, Some(at(10)));
        alarm.forget(3, &mut entered);
        assert_eq!((alarm.earliest(), entered), (None, None));
    }
}
