//! Which runs of two candidates are compared with each other.

use super::CacheState;

/// What a run gave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// From 1.
    pub round: u32,
    /// The state of the machine in the run, if it was probed.
    pub state: Option<CacheState>,
    /// The figure.
    pub value: f64,
}

/// Two runs in the same state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pair {
    /// The state of both, if it was probed.
    pub state: Option<CacheState>,
    /// Ours in units of theirs.
    pub ratio: f64,
}

/// Pairs runs in which the machine was in the same state; each run is in one pair at most.
///
/// Runs of the same round come first, since what else disturbs the machine disturbs both. What is left of a
/// state is paired in the order of the rounds. A run in which the state changed, or of which it is not known, has
/// no pair, and neither has one whose state the other candidate did not meet. Runs of a machine that is not
/// probed are paired with their like.
///
/// ```
/// use roce_bench::report::{CacheState, Sample, pairs};
/// let sample = |round, state, value| Sample { round, state: Some(state), value };
/// let ours = [sample(1, CacheState::Near, 40.0), sample(2, CacheState::Far, 15.0)];
/// let theirs = [sample(1, CacheState::Far, 20.0), sample(2, CacheState::Far, 30.0)];
/// let ratios: Vec<f64> = pairs(&ours, &theirs).iter().map(|pair| pair.ratio).collect();
/// assert_eq!(ratios, [0.5]);
/// ```
pub fn pairs(ours: &[Sample], theirs: &[Sample]) -> Vec<Pair> {
    let mut pairs = Vec::new();
    for state in [Some(CacheState::Near), Some(CacheState::Far), None] {
        let mut theirs: Vec<&Sample> = in_state(theirs, state).collect();
        let mut left = Vec::new();
        let mut pair = |ours: &Sample, theirs: &Sample| {
            pairs.push(Pair { state, ratio: ours.value / theirs.value });
        };
        for mine in in_state(ours, state) {
            match theirs.iter().position(|other| other.round == mine.round) {
                Some(place) => pair(mine, theirs.remove(place)),
                None => left.push(mine),
            }
        }
        left.iter().zip(&theirs).for_each(|(mine, other)| pair(mine, other));
    }
    pairs
}

fn in_state(samples: &[Sample], state: Option<CacheState>) -> impl Iterator<Item = &Sample> {
    samples.iter().filter(move |sample| sample.state == state)
}

#[cfg(test)]
mod tests {
    use super::CacheState::{Changed, Far, Near, Unknown};
    use super::*;

    fn samples(states: &[CacheState], values: &[f64]) -> Vec<Sample> {
        let each = (1..).zip(states).zip(values);
        each.map(|((round, state), value)| Sample { round, state: Some(*state), value: *value })
            .collect()
    }

    fn ratios(ours: &[Sample], theirs: &[Sample]) -> Vec<(CacheState, f64)> {
        pairs(ours, theirs).iter().filter_map(|pair| Some((pair.state?, pair.ratio))).collect()
    }

    #[test]
    fn runs_of_one_round_are_paired_if_their_state_is_the_same() {
        let ours = samples(&[Near, Far, Near], &[40.0, 10.0, 50.0]);
        let theirs = samples(&[Near, Far, Near], &[20.0, 10.0, 10.0]);
        assert_eq!(ratios(&ours, &theirs), [(Near, 2.0), (Near, 5.0), (Far, 1.0)]);
    }

    #[test]
    fn a_near_run_is_never_compared_with_a_far_one() {
        let ours = samples(&[Near, Near, Near], &[40.0, 40.0, 40.0]);
        let theirs = samples(&[Far, Far, Far], &[10.0, 10.0, 10.0]);
        assert_eq!(ratios(&ours, &theirs), []);
    }

    #[test]
    fn what_is_left_of_a_state_is_paired_across_rounds_and_once() {
        // Round 3 is near at both ends and a pair of its own; rounds 1 and 2 make another.
        let ours = samples(&[Near, Far, Near, Far], &[12.0, 7.0, 30.0, 8.0]);
        let theirs = samples(&[Far, Near, Near, Near], &[7.0, 6.0, 10.0, 5.0]);
        assert_eq!(ratios(&ours, &theirs), [(Near, 3.0), (Near, 2.0), (Far, 1.0)]);
    }

    #[test]
    fn a_run_whose_state_changed_has_no_pair() {
        let ours = samples(&[Changed, Near], &[40.0, 40.0]);
        let theirs = samples(&[Changed, Near], &[10.0, 20.0]);
        assert_eq!(ratios(&ours, &theirs), [(Near, 2.0)]);
    }

    #[test]
    fn a_run_of_which_the_state_is_not_known_has_no_pair() {
        let ours = samples(&[Unknown, Near], &[40.0, 40.0]);
        let theirs = samples(&[Unknown, Near], &[10.0, 20.0]);
        assert_eq!(ratios(&ours, &theirs), [(Near, 2.0)]);
    }

    #[test]
    fn runs_of_a_machine_that_is_not_probed_are_paired_by_round() {
        let sample = |round, value| Sample { round, state: None, value };
        let found = pairs(&[sample(1, 40.0), sample(2, 30.0)], &[sample(2, 10.0), sample(1, 20.0)]);
        assert_eq!(found.iter().map(|pair| pair.ratio).collect::<Vec<_>>(), [2.0, 3.0]);
        assert!(pairs(&[sample(1, 40.0)], &samples(&[Near], &[10.0])).is_empty());
    }
}
