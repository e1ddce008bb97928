//! How many strays are passed on.

use std::time::Duration;

use crate::limits::{MAX_STRAYS_AT_ONCE, STRAY_INTERVAL};

/// A limit on the strays that are passed on to be answered: some at once, and one for each
/// [`STRAY_INTERVAL`].
///
/// For each of them the host looks for another process that takes it, and perhaps sends an answer. Without a
/// limit a flood would take the processor from the host's connections.
#[derive(Debug, Default)]
pub(crate) struct StrayLimit {
    /// Time at which as many are admitted at once again as ever.
    recovered: Duration,
}

impl StrayLimit {
    /// Returns true if another stray may pass.
    pub(crate) fn admits(&mut self, now: Duration) -> bool {
        let start = self.recovered.max(now);
        if start - now > STRAY_INTERVAL * (MAX_STRAYS_AT_ONCE - 1) {
            return false;
        }
        self.recovered = start + STRAY_INTERVAL;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(limit: &mut StrayLimit, now: Duration, count: usize) -> usize {
        (0..count).filter(|_| limit.admits(now)).count()
    }

    #[test]
    fn a_flood_passes_at_the_rate_of_the_limit() {
        let mut limit = StrayLimit::default();
        // Ten seconds with 20 000 a second.
        let mut passed = 0;
        for tick in 0..10_000 {
            passed += admitted(&mut limit, Duration::from_millis(1000 + tick), 20);
        }
        assert_eq!(passed, 10_000 + MAX_STRAYS_AT_ONCE as usize - 1);
    }

    #[test]
    fn strays_below_the_limit_all_pass_and_a_pause_is_not_saved_up() {
        let mut limit = StrayLimit::default();
        for tick in 0..5000 {
            assert!(limit.admits(Duration::from_millis(tick)), "at {tick} ms");
        }
        let much_later = Duration::from_secs(1000);
        let at_once = MAX_STRAYS_AT_ONCE as usize;
        assert_eq!(admitted(&mut limit, much_later, 3 * at_once), at_once);
        assert!(!limit.admits(much_later + STRAY_INTERVAL - Duration::from_nanos(1)));
        assert!(limit.admits(much_later + STRAY_INTERVAL));
        assert!(!limit.admits(much_later + STRAY_INTERVAL));
    }
}
