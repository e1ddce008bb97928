//! Shares of the queue pairs of a test.

use serde::{Deserialize, Serialize};

/// The smallest and the largest share of a queue pair, relative to the mean: 1 and 1 if all carried
/// the same.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Fairness {
    pub(crate) min_share: f64,
    pub(crate) max_share: f64,
}

impl Fairness {
    /// Computes the shares from what each carried, in any unit; `None` for fewer than two queue
    /// pairs or if nothing was carried.
    pub(crate) fn of(carried: impl Iterator<Item = u64> + Clone) -> Option<Self> {
        let count = carried.clone().count();
        let sum: u64 = carried.clone().sum();
        if count < 2 || sum == 0 {
            return None;
        }
        let mean = sum as f64 / count as f64;
        let share = |carried: Option<u64>| carried.unwrap_or(0) as f64 / mean;
        Some(Self { min_share: share(carried.clone().min()), max_share: share(carried.max()) })
    }
}

/// Messages of each queue pair at the start and at the end of the measurement.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shares {
    before: Option<Vec<u64>>,
    after: Option<Vec<u64>>,
}

impl Shares {
    /// Records the start of the measurement. Only the first call counts.
    pub(crate) fn begin(&mut self, done: impl Iterator<Item = u64>) {
        self.before.get_or_insert_with(|| done.collect());
    }

    /// Records the end of the measurement. Only the first call counts.
    pub(crate) fn end(&mut self, done: impl Iterator<Item = u64>) {
        self.after.get_or_insert_with(|| done.collect());
    }

    /// Returns the fairness of the measurement.
    pub(crate) fn fairness(&self) -> Option<Fairness> {
        let pairs = self.before.as_ref()?.iter().zip(self.after.as_ref()?);
        Fairness::of(pairs.map(|(before, after)| after.saturating_sub(*before)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_relative_to_the_mean_and_only_of_the_measured_time() {
        let mut shares = Shares::default();
        shares.begin([100, 0, 7].into_iter());
        shares.begin([0, 0, 0].into_iter());
        shares.end([110, 5, 22].into_iter());
        shares.end([999, 5, 22].into_iter());
        assert_eq!(shares.fairness(), Some(Fairness { min_share: 0.5, max_share: 1.5 }));
    }

    #[test]
    fn one_queue_pair_and_an_idle_time_are_neither_fair_nor_unfair() {
        assert_eq!(Fairness::of([5].into_iter()), None);
        assert_eq!(Fairness::of([0, 0].into_iter()), None);
        assert_eq!(Shares::default().fairness(), None);
    }
}
