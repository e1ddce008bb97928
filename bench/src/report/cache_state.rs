//! Near and far: in which state of the machine a run was measured.

use serde::{Deserialize, Serialize};

/// The round trip of a cache line between the two processors of a benchmark, around a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CacheDistance {
    /// Nanoseconds before the run.
    pub before: Option<f64>,
    /// Nanoseconds after it.
    pub after: Option<f64>,
    /// What the two make of it.
    pub state: CacheState,
}

/// The state of the machine in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CacheState {
    /// A cache line took less than the threshold, before and after the run.
    Near,
    /// It took at least the threshold, before and after.
    Far,
    /// The two differ: the run has some of both, and is compared with no other.
    Changed,
    /// Other load kept a probe from its end: the run is compared with no other, either.
    Unknown,
}

impl CacheDistance {
    /// Two probes, with the state that a threshold makes of them.
    pub fn new(before: Option<f64>, after: Option<f64>, threshold: f64) -> Self {
        let state = match (before, after) {
            (Some(before), Some(after)) => match (before < threshold, after < threshold) {
                (true, true) => CacheState::Near,
                (false, false) => CacheState::Far,
                _ => CacheState::Changed,
            },
            _ => CacheState::Unknown,
        };
        Self { before, after, state }
    }

    pub(super) fn probes(&self) -> impl Iterator<Item = f64> + use<> {
        [self.before, self.after].into_iter().flatten()
    }
}

/// Returns the nanoseconds at which far begins, among such probes: the geometric mean of the two
/// neighbours with the widest gap between them, if there are two groups with a factor of
/// `MIN_GAP` between.
///
/// Otherwise the machine has shown one state, and the threshold lies beside all probes: above them if they are
/// typically below [`TYPICAL_FAR`], and else below them. A group has at least two probes and a twentieth of all,
/// so that an outlier is none.
pub fn threshold(probes: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> =
        probes.into_iter().filter(|probe| probe.is_finite() && *probe > 0.0).collect();
    sorted.sort_by(f64::total_cmp);
    let [Some(&least), Some(&most)] = [sorted.first(), sorted.last()] else { return TYPICAL_FAR };
    let least_group = (sorted.len() / 20).max(2);
    let between_groups = sorted.windows(2).enumerate().filter(|(place, _)| {
        let below = place + 1;
        below >= least_group && sorted.len() - below >= least_group
    });
    let widest = between_groups
        .map(|(_, pair)| (pair[1] / pair[0], (pair[0] * pair[1]).sqrt()))
        .max_by(|(one, _), (other, _)| one.total_cmp(other));
    match widest {
        Some((gap, middle)) if gap >= MIN_GAP => middle,
        _ if sorted[sorted.len() / 2] < TYPICAL_FAR => TYPICAL_FAR.max(most * MIN_GAP.sqrt()),
        _ => TYPICAL_FAR.min(least / MIN_GAP.sqrt()),
    }
}

/// Nanoseconds: on the machine on which the states were found near is about 50, and far 100 to 320.
pub const TYPICAL_FAR: f64 = 100.0;
/// The least factor between two probes that makes them two groups.
const MIN_GAP: f64 = 1.5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_threshold_lies_in_the_widest_gap_between_two_groups() {
        let far = threshold([50.0, 330.0, 52.0, 310.0, 60.0, 320.0]);
        assert!((136.0..137.0).contains(&far), "{far}");
        // Other groups than those of the machine that has the default.
        let far = threshold([20.0, 21.0, 22.0, 80.0, 81.0]);
        assert!((41.0..43.0).contains(&far), "{far}");
    }

    #[test]
    fn one_group_is_one_state_wherever_it_lies_also_with_an_outlier() {
        let group = |center: f64| (0..40).map(move |step| center + f64::from(step));
        for (center, is_near) in [(30.0, true), (70.0, true), (85.0, false), (300.0, false)] {
            for outlier in [None, Some(9000.0)] {
                let threshold = threshold(group(center).chain(outlier));
                assert!(
                    group(center).all(|it| (it < threshold) == is_near),
                    "{center} {threshold}"
                );
            }
        }
        assert_eq!(threshold([]), TYPICAL_FAR);
        assert_eq!(threshold([40.0, f64::NAN, 0.0]), TYPICAL_FAR);
    }

    #[test]
    fn an_outlier_does_not_hide_two_groups() {
        let two = (0..20).map(|step| 50.0 + f64::from(step)).chain((0..20).map(|_| 320.0));
        let far = threshold(two.chain([20_000.0]));
        assert!((69.0..320.0).contains(&far), "{far}");
    }

    #[test]
    fn a_run_is_near_or_far_or_has_some_of_both() {
        let state = |before, after| CacheDistance::new(before, after, 100.0).state;
        assert_eq!(state(Some(50.0), Some(99.0)), CacheState::Near);
        assert_eq!(state(Some(100.0), Some(320.0)), CacheState::Far);
        assert_eq!(state(Some(50.0), Some(320.0)), CacheState::Changed);
        assert_eq!(state(Some(320.0), Some(50.0)), CacheState::Changed);
        assert_eq!(state(None, Some(50.0)), CacheState::Unknown);
        assert_eq!(state(Some(50.0), None), CacheState::Unknown);
    }
}
