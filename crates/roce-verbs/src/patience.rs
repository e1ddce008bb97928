//! How long to spin before sleeping.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long to spin before sleeping, by how long the last sleep was.
///
/// A sleep costs some 10 µs on the way down and up, and the sender that ends it pays for part of
/// that. Where sleeps turn out to be shorter than the longest spin, spinning on would have been
/// better; where they are long, a short spin is all that the next packet is worth.
#[derive(Debug)]
pub(crate) struct Patience {
    longest: Duration,
    sleeps_are_short: AtomicBool,
}

/// The share of the longest spin where nothing is going on.
const LEAST_SHARE: u32 = 10;

impl Patience {
    pub(crate) fn new(longest: Duration) -> Self {
        Self { longest, sleeps_are_short: AtomicBool::new(false) }
    }

    /// How long to spin after the last work.
    pub(crate) fn spin(&self) -> Duration {
        let is_long = self.sleeps_are_short.load(Ordering::Relaxed);
        if is_long { self.longest } else { self.longest / LEAST_SHARE }
    }

    /// A sleep has lasted so long.
    pub(crate) fn note_sleep(&self, lasted: Duration) {
        self.sleeps_are_short.store(lasted < self.longest, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spinning_goes_on_for_as_long_as_sleeps_would_have_been_shorter() {
        let patience = Patience::new(Duration::from_micros(200));
        assert_eq!(patience.spin(), Duration::from_micros(20));
        patience.note_sleep(Duration::from_micros(60));
        assert_eq!(patience.spin(), Duration::from_micros(200));
        patience.note_sleep(Duration::from_millis(1));
        assert_eq!(patience.spin(), Duration::from_micros(20));
    }
}
