//! Finds receivers that send CNPs of a queue pair too often.

use std::time::Duration;

use crate::Timestamp;

/// A leaky bucket of the CNPs for one sender: each adds one, and one leaves in each
/// [`MIN_INTERVAL`].
///
/// Two CNPs alone show little: they may have waited in the same queue, or for the thread that
/// captures them, and come together then.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CnpRate {
    /// When the bucket was empty, and the CNPs since.
    since: Timestamp,
    cnps: u32,
}

impl CnpRate {
    /// Notes a CNP. Returns the number of CNPs and their time if the bucket is full, which empties
    /// it.
    pub(super) fn note(&mut self, time: Timestamp) -> Option<(u32, Duration)> {
        let lasted = time.since(self.since);
        let left = lasted.as_nanos() / MIN_INTERVAL.as_nanos();
        if u128::from(self.cnps) <= left {
            *self = Self { since: time, cnps: 0 };
        }
        self.cnps = self.cnps.saturating_add(1);
        let is_full = u128::from(self.cnps) > left + u128::from(CAPACITY);
        is_full.then(|| (std::mem::take(&mut self.cnps), lasted))
    }
}

/// `MIN_TIME_BETWEEN_CNPS` of ConnectX cards, the shortest published default. The paper about DCQCN
/// has 50 µs.
const MIN_INTERVAL: Duration = Duration::from_micros(4);

/// CNPs that may come together: those of a millisecond at the shortest interval.
const CAPACITY: u32 = 250;

#[cfg(test)]
mod tests {
    use super::*;

    /// Times at which CNPs that far apart are reported.
    fn reports(interval: u64, cnps: u64, batch: u64) -> Vec<(u64, u32)> {
        let mut rate = CnpRate::default();
        let times = (0..cnps).map(|i| 5_000_000 + i.next_multiple_of(batch) * interval);
        times.filter_map(|time| Some((time, rate.note(Timestamp(time))?.0))).collect()
    }

    #[test]
    fn cnps_at_the_shortest_interval_are_never_too_many_even_if_they_come_in_batches() {
        assert_eq!(reports(4_000, 100_000, 1), []);
        assert_eq!(reports(4_000, 100_000, 200), [], "0.8 ms at once");
        assert_eq!(reports(50_000, 100_000, 200), [], "10 ms at once");
    }

    #[test]
    fn cnps_at_half_the_interval_are_too_many_after_a_millisecond_and_then_again() {
        let found = reports(2_000, 1_600, 1);
        assert_eq!(found.len(), 3, "{found:?}");
        assert_eq!(found[0], (5_000_000 + 2_000 * 499, 500));
        assert_eq!(reports(2_000, 400, 1), []);
    }

    #[test]
    fn times_that_go_backwards_are_no_reason_to_panic() {
        let mut rate = CnpRate::default();
        assert_eq!(rate.note(Timestamp(u64::MAX)), None);
        assert_eq!(rate.note(Timestamp(0)), None);
    }
}
