//! Whether the queue pairs of a test had equal shares of it.

use serde::{Deserialize, Serialize};

/// The shares of the queue pair that carried least and of the one that carried most, in the
/// mean of all: 1 and 1 when all carried the same.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Fairness {
    pub(crate) min_share: f64,
    pub(crate) max_share: f64,
}

impl Fairness {
    /// Of what each carried, in whatever unit; `None` for less than two, or where nothing was
    /// carried at all.
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

/// What each queue pair carried between two instants.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shares {
    before: Option<Vec<u64>>,
    after: Option<Vec<u64>>,
}

impl Shares {
    /// The measured time begins: so much is done already. Only the first call counts.
    pub(crate) fn begin(&mut self, done: impl Iterator<Item = u64>) {
        self.before.get_or_insert_with(|| done.collect());
    }

    /// The measured time ends. Only the first call counts.
    pub(crate) fn end(&mut self, done: impl Iterator<Item = u64>) {
        self.after.get_or_insert_with(|| done.collect());
    }

    /// How fair that was.
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
