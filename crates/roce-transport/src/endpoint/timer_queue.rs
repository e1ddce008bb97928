//! The timers of all queue pairs, soonest first.

use std::collections::BTreeSet;

use crate::Instant;

/// The queue pairs that want to be woken, soonest first; at most one entry for each.
///
/// Lazy: a deadline that moves away (as an ACK timer does with every ACK) leaves its entry
/// where it is. When that comes up, the queue pair is looked at and entered anew.
#[derive(Debug, Default)]
pub(crate) struct TimerQueue {
    entries: BTreeSet<(Instant, usize)>,
    /// That of the first: it is asked for several times for each message.
    earliest: Option<Instant>,
}

impl TimerQueue {
    /// The next moment at which some queue pair must be looked at.
    pub(crate) fn earliest(&self) -> Option<Instant> {
        self.earliest
    }

    /// Removes and returns a queue pair that must be looked at by now.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<usize> {
        if self.earliest.is_none_or(|at| at > now) {
            return None;
        }
        let due = self.entries.pop_first();
        self.refresh_earliest();
        due.map(|(_, slot)| slot)
    }

    /// Sees to it that queue pair `slot` is looked at by `wanted`. `entered` is where its
    /// entry stands, kept by the caller.
    pub(crate) fn set(
        &mut self,
        slot: usize,
        entered: &mut Option<Instant>,
        wanted: Option<Instant>,
    ) {
        let Some(wanted) = wanted else { return };
        if let Some(at) = *entered {
            if at <= wanted {
                return;
            }
            self.entries.remove(&(at, slot));
        }
        self.entries.insert((wanted, slot));
        self.refresh_earliest();
        *entered = Some(wanted);
    }

    /// Forgets queue pair `slot`.
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
