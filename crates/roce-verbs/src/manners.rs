//! When a program that polls lets others have the core.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Empty rounds between two yields where others want the core.
const FEW: u32 = 48;
/// And where nobody does: some 60 µs.
const MANY: u32 = 1536;
/// A yield that takes longer has let somebody run: one for nothing takes some 0.3 µs.
const FOR_NOTHING: Duration = Duration::from_micros(2);

/// When a program that polls yields: the peer may be waiting for the very core, on a small machine
/// or with more ranks than cores. It yields seldom as long as that turns out to be for nothing,
/// since a packet that arrives meanwhile waits.
#[derive(Debug)]
pub(crate) struct Manners {
    rounds: AtomicU32,
    interval: AtomicU32,
}

impl Default for Manners {
    fn default() -> Self {
        Self { rounds: AtomicU32::new(0), interval: AtomicU32::new(FEW) }
    }
}

impl Manners {
    /// Nothing was to be done in a round.
    pub(crate) fn after_empty_round(&self) {
        let rounds = self.rounds.load(Ordering::Relaxed) + 1;
        if rounds < self.interval.load(Ordering::Relaxed) {
            self.rounds.store(rounds, Ordering::Relaxed);
            return;
        }
        let began = Instant::now();
        std::thread::yield_now();
        self.note_yield(began.elapsed());
    }

    fn note_yield(&self, took: Duration) {
        self.rounds.store(0, Ordering::Relaxed);
        let interval = match took > FOR_NOTHING {
            true => FEW,
            false => (2 * self.interval.load(Ordering::Relaxed)).min(MANY),
        };
        self.interval.store(interval, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yields_become_rare_as_long_as_they_are_for_nothing_and_frequent_at_once_when_not() {
        let manners = Manners::default();
        (0..10).for_each(|_| manners.note_yield(Duration::from_nanos(300)));
        assert_eq!(manners.interval.load(Ordering::Relaxed), MANY);
        manners.note_yield(Duration::from_micros(50));
        assert_eq!(manners.interval.load(Ordering::Relaxed), FEW);
    }

    #[test]
    fn not_every_empty_round_yields() {
        let manners = Manners::default();
        (1..FEW).for_each(|_| manners.after_empty_round());
        assert_eq!(manners.rounds.load(Ordering::Relaxed), FEW - 1);
        manners.after_empty_round();
        assert_eq!(manners.rounds.load(Ordering::Relaxed), 0);
    }
}
