//! The timers of one queue pair.

use crate::Instant;

/// The timers of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timer {
    /// Local ACK timeout: the oldest request is not acknowledged in time.
    AckTimeout,
    /// Probe timeout: no response for a few round trips.
    Probe,
    /// The wait that an RNR NAK requires has passed.
    RnrTimeout,
}

impl Timer {
    const ALL: [Self; 3] = [Self::AckTimeout, Self::Probe, Self::RnrTimeout];
}

/// One deadline per [`Timer`] in nanoseconds, [`UNARMED`] for none; few enough that a scan beats a
/// heap.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timers([u64; Timer::ALL.len()]);

/// The end of time.
const UNARMED: u64 = u64::MAX;

impl Default for Timers {
    fn default() -> Self {
        Self([UNARMED; Timer::ALL.len()])
    }
}

impl Timers {
    pub(crate) fn arm(&mut self, timer: Timer, at: Instant) {
        self.0[timer as usize] = at.as_nanos();
    }

    pub(crate) fn stop(&mut self, timer: Timer) {
        self.0[timer as usize] = UNARMED;
    }

    pub(crate) fn stop_all(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn is_armed(&self, timer: Timer) -> bool {
        self.0[timer as usize] != UNARMED
    }

    /// Its deadline, if it is armed.
    pub(crate) fn at(&self, timer: Timer) -> Option<Instant> {
        deadline(self.0[timer as usize])
    }

    /// The earliest deadline.
    pub(crate) fn earliest(&self) -> Option<Instant> {
        deadline(self.0.into_iter().fold(UNARMED, u64::min))
    }

    /// Disarms and returns one timer that is due, in the order of [`Timer::ALL`].
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<Timer> {
        let is_due = |at: Instant| at <= now;
        let due = Timer::ALL.into_iter().find(|&timer| self.at(timer).is_some_and(is_due))?;
        self.stop(due);
        Some(due)
    }
}

fn deadline(nanos: u64) -> Option<Instant> {
    (nanos != UNARMED).then(|| Instant::from_nanos(nanos))
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
        timers.arm(Timer::RnrTimeout, at(10));
        assert_eq!(timers.take_due(at(9)), None);
        assert_eq!(timers.take_due(at(10)), Some(Timer::RnrTimeout));
        assert_eq!(timers.take_due(at(10)), None);
    }
}
