//! The time in which the driver ran, which is the time that every timer counts.

use core::time::Duration;

use crate::Instant;

/// A clock that stands still while the driver does not run.
///
/// The driver calls by the earliest deadline. If it calls much later, then it was not running:
/// stopped, without a processor, or waiting for something else. Meanwhile nothing was sent and no
/// response was handled, so that time shows nothing of the peer and does not count. The clock goes
/// on from a little before the deadline, so that the driver handles what has arrived meanwhile
/// before any timer fires.
///
/// Time in which the driver sleeps until the deadline counts: it is woken by what arrives.
#[derive(Debug, Default)]
pub(crate) struct RunningTime {
    latest: Instant,
    /// The driver's clock then.
    now: Instant,
    /// How far the clock is behind the driver's, in nanoseconds.
    behind: u64,
    /// The deadline that was put off last because the driver was late.
    put_off: Option<Instant>,
}

/// How late the driver may call before it counts as not running. A thread that runs is woken
/// within 0.1 ms. One that others have displaced waits for a time slice, a millisecond or more.
const MAX_DELAY: Duration = Duration::from_millis(1);
/// How long the driver has to take in what arrived while it did not run: a full ring of 128 trains
/// takes some 0.4 ms.
const CATCH_UP: Duration = Duration::from_micros(500);

impl RunningTime {
    /// The running time at the driver's `now`, where the earliest deadline is `due`.
    #[inline]
    pub(crate) fn advance(
        &mut self,
        now: Instant,
        due: impl FnOnce() -> Option<Instant>,
    ) -> Instant {
        // All packets of a batch come at the same time.
        if now != self.now {
            self.now = now;
            self.move_to(now, due());
        }
        self.latest
    }

    fn move_to(&mut self, now: Instant, due: Option<Instant>) {
        let time = Instant::from_nanos(now.as_nanos().saturating_sub(self.behind));
        self.latest = match due {
            Some(due) if time > due + MAX_DELAY => self.skip(now, due),
            _ => time.max(self.latest),
        };
    }

    /// Leaves out the time since `due`.
    #[cold]
    fn skip(&mut self, now: Instant, due: Instant) -> Instant {
        // Once for each deadline, or timers would never fire for a driver that is always late.
        let catch_up = if self.put_off == Some(due) { Duration::ZERO } else { CATCH_UP };
        self.put_off = Some(due);
        let catch_up = catch_up.as_nanos() as u64; // less than a second
        let from = due.as_nanos().saturating_sub(catch_up);
        let from = Instant::from_nanos(from).max(self.latest);
        self.behind = now.as_nanos().saturating_sub(from.as_nanos());
        from
    }

    /// The latest running time.
    pub(crate) const fn latest(&self) -> Instant {
        self.latest
    }

    /// When it will be `time` by the driver's clock, if the driver runs.
    pub(crate) fn to_driver(&self, time: Instant) -> Instant {
        time + Duration::from_nanos(self.behind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn at(micros: u64) -> Instant {
        Instant::from_nanos(micros * 1000)
    }

    #[test]
    fn time_counts_while_the_driver_calls_by_its_deadlines() {
        let mut time = RunningTime::default();
        assert_eq!(time.advance(at(5), || None), at(5));
        assert_eq!(time.advance(at(60_000_000), || None), at(60_000_000), "nothing was due");
        let due = at(70_000_000);
        assert_eq!(time.advance(at(70_001_000), || Some(due)), at(70_001_000), "hardly late");
        assert_eq!(time.to_driver(due), due);
    }

    #[test]
    fn time_after_a_deadline_that_was_missed_does_not_count() {
        let mut time = RunningTime::default();
        time.advance(at(10), || None);
        let due = at(2000);
        let resumed = time.advance(at(50_000), || Some(due));
        assert_eq!(resumed, at(1500), "there is time to catch up");
        assert_eq!(time.to_driver(due), at(50_500));
        assert_eq!(time.advance(at(50_500), || Some(due)), due);
    }

    #[test]
    fn a_deadline_is_put_off_once_however_late_the_driver_is() {
        let mut time = RunningTime::default();
        let due = at(2000);
        assert_eq!(time.advance(at(50_000), || Some(due)), at(1500));
        assert_eq!(time.advance(at(50_000), || Some(due)), at(1500), "at the same time");
        assert_eq!(time.advance(at(90_000), || Some(due)), due, "now it fires");
        let next = at(3000);
        assert_eq!(time.advance(at(130_000), || Some(next)), at(2500));
    }

    proptest! {
        #[test]
        fn time_never_goes_back_and_never_passes_a_missed_deadline_by_more_than_the_delay(
            steps in prop::collection::vec((0..20_000u64, 1..5000u64), 1..100),
        ) {
            let (mut time, mut now, mut before) = (RunningTime::default(), at(0), at(0));
            for (step, until_due) in steps {
                let due = before + Duration::from_micros(until_due);
                now += Duration::from_micros(step);
                let this = time.advance(now, || Some(due));
                prop_assert!(this >= before && this <= due + MAX_DELAY);
                prop_assert!(this.saturating_since(before) <= Duration::from_micros(step));
                before = this;
            }
        }
    }
}
