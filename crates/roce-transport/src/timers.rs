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
    /// Congestion control lets the next train leave.
    Pace,
}

impl Timer {
    const ALL: [Self; 4] = [Self::AckTimeout, Self::Probe, Self::RnrTimeout, Self::Pace];
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

    /// Its deadline, if it is armed.
    pub(crate) fn at(&self, timer: Timer) -> Option<Instant> {
        self.0[timer as usize]
    }

    /// The earliest deadline.
    pub(crate) fn earliest(&self) -> Option<Instant> {
        self.0.iter().flatten().min().copied()
    }

    /// Disarms and returns one timer that is due, in the order of [`Timer::ALL`].
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<Timer> {
        Timer::ALL.into_iter().find(|&it| self.0[it as usize].take_if(|at| *at <= now).is_some())
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
        timers.arm(Timer::RnrTimeout, at(10));
        assert_eq!(timers.take_due(at(9)), None);
        assert_eq!(timers.take_due(at(10)), Some(Timer::RnrTimeout));
        assert_eq!(timers.take_due(at(10)), None);
    }
}
