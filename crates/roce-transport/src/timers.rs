//! When a queue pair wants to be woken, and which queue pair is next.

use std::collections::BTreeSet;

use crate::Instant;

/// Every reason for which a queue pair wants to be woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timer {
    /// The oldest unacknowledged request has waited long enough: go back and send again.
    AckWait,
    /// Nothing was heard for a few round trips: something may be lost.
    Quiet,
    /// The time that the peer asked for in an RNR NAK has passed: try again.
    RnrWait,
}

impl Timer {
    const ALL: [Self; 3] = [Self::AckWait, Self::Quiet, Self::RnrWait];
}

/// One deadline per [`Timer`]; few enough that a scan beats a heap.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Timers([Option<Instant>; Timer::ALL.len()]);

impl Timers {
    pub(crate) fn arm(&mut self, timer: Timer, at: Instant) {
        self.0[timer as usize] = Some(at);
    }

    pub(crate) fn stop(&mut self, timer: Timer) {
        self.0[timer as usize] = None;
    }

    pub(crate) fn stop_all(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn is_armed(&self, timer: Timer) -> bool {
        self.at(timer).is_some()
    }

    /// When it fires, if it is armed.
    pub(crate) fn at(&self, timer: Timer) -> Option<Instant> {
        self.0[timer as usize]
    }

    /// The next moment at which anything is due.
    pub(crate) fn earliest(&self) -> Option<Instant> {
        self.0.iter().flatten().min().copied()
    }

    /// Disarms and returns one timer that is due, in the order of [`Timer::ALL`].
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<Timer> {
        Timer::ALL.into_iter().find(|&it| self.0[it as usize].take_if(|at| *at <= now).is_some())
    }
}

/// The queue pairs that want to be woken, soonest first; at most one entry for each.
///
/// Lazy: a deadline that moves away (as an ACK timer does with every ACK) leaves its entry
/// where it is. When that comes up, the queue pair is looked at and entered anew.
#[derive(Debug, Default)]
pub(crate) struct Alarm {
    entries: BTreeSet<(Instant, usize)>,
    /// That of the first: it is asked for several times for each message.
    earliest: Option<Instant>,
}

impl Alarm {
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
        self.note_earliest();
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
        self.note_earliest();
        *entered = Some(wanted);
    }

    /// Forgets queue pair `slot`.
    pub(crate) fn forget(&mut self, slot: usize, entered: &mut Option<Instant>) {
        if let Some(at) = entered.take() {
            self.entries.remove(&(at, slot));
            self.note_earliest();
        }
    }

    fn note_earliest(&mut self) {
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
    fn a_timer_fires_once_and_not_early() {
        let mut timers = Timers::default();
        timers.arm(Timer::RnrWait, at(10));
        assert_eq!(timers.take_due(at(9)), None);
        assert_eq!(timers.take_due(at(10)), Some(Timer::RnrWait));
        assert_eq!(timers.take_due(at(10)), None);
    }

    #[test]
    fn a_deadline_that_moves_away_is_not_touched_and_one_that_comes_nearer_is() {
        let (mut alarm, mut entered) = (Alarm::default(), None);
        alarm.set(3, &mut entered, Some(at(10)));
        alarm.set(3, &mut entered, Some(at(20)));
        assert_eq!((alarm.earliest(), entered), (Some(at(10)), Some(at(10))));
        alarm.set(3, &mut entered, Some(at(5)));
        assert_eq!(alarm.take_due(at(5)), Some(3));
        assert_eq!(alarm.take_due(at(100)), None, "one entry for each queue pair");
    }

    #[test]
    fn a_forgotten_queue_pair_never_wakes() {
        let (mut alarm, mut entered) = (Alarm::default(), None);
        alarm.set(3, &mut entered, Some(at(10)));
        alarm.forget(3, &mut entered);
        assert_eq!((alarm.earliest(), entered), (None, None));
    }
}
