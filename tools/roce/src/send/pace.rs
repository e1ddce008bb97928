//! Times at which packets leave.

use std::time::{Duration, Instant};

use roce_dissect::DisplayDuration;

/// A steady rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    start: Instant,
    rate: u32,
}

impl Pace {
    /// Begins a series of so many packets per second now.
    pub(super) fn new(rate: u32) -> Self {
        Self { start: Instant::now(), rate }
    }

    /// Returns when the packet with this index leaves.
    pub(super) fn at(&self, index: u32) -> Instant {
        let nanos = u64::from(index) * 1_000_000_000 / u64::from(self.rate.max(1));
        self.start + Duration::from_nanos(nanos)
    }

    /// Returns a line with the number of packets that have left, and their rate.
    pub(super) fn report(&self, count: u32) -> String {
        let time = self.start.elapsed();
        // The first leaves at the start.
        let rate = f64::from(count.saturating_sub(1)) / time.as_secs_f64().max(1e-9);
        format!("{count} packets in {}, {rate:.0} per second", DisplayDuration(time))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_leave_at_their_rate_from_the_first_on() {
        let pace = Pace::new(200);
        assert_eq!(pace.at(0), pace.start);
        assert_eq!(pace.at(200), pace.start + Duration::from_secs(1));
        assert_eq!(
            Pace { rate: 1, ..pace }.at(u32::MAX) - pace.start,
            Duration::from_secs(u32::MAX.into())
        );
    }
}
