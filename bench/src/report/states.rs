//! The state of the machine in each run of a report.

use super::cache_state::{CacheDistance, threshold};
use super::{BenchmarkResult, Report};

impl Report {
    /// Gives every run that was probed its state, by a threshold made of all probes there are.
    pub fn set_cache_states(&mut self) {
        let all = || self.benchmarks.iter().flat_map(BenchmarkResult::distances);
        let is_probed = all().next().is_some();
        let threshold = threshold(all().flat_map(|distance| distance.probes()));
        self.benchmarks.iter_mut().for_each(|benchmark| benchmark.set_states(threshold));
        self.about.cache_threshold = is_probed.then_some(threshold);
    }
}

impl BenchmarkResult {
    /// Gives every run that was probed its state, by a threshold made of the probes of this benchmark.
    pub fn set_cache_states(&mut self) {
        let threshold = threshold(self.distances().flat_map(|distance| distance.probes()));
        self.set_states(threshold);
    }

    fn set_states(&mut self, threshold: f64) {
        let points = self.candidates.iter_mut().flat_map(|candidate| &mut candidate.points);
        let runs = points.flat_map(|point| &mut point.runs);
        for distance in runs.filter_map(|run| run.cache.as_mut()) {
            *distance = CacheDistance::new(distance.before, distance.after, threshold);
        }
    }

    fn distances(&self) -> impl Iterator<Item = &CacheDistance> {
        let points = self.candidates.iter().flat_map(|candidate| &candidate.points);
        points.flat_map(|point| &point.runs).filter_map(|run| run.cache.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::super::cache_state::{CacheState, TYPICAL_FAR};
    use super::super::example;
    use super::*;

    #[test]
    fn states_follow_from_all_probes_of_a_report() {
        let mut report = example::report();
        report.set_cache_states();
        assert_eq!(report.about.cache_threshold, None, "nothing was probed");
        let runs = &mut report.benchmarks[0].candidates[0].points[0].runs;
        for (run, (before, after)) in
            runs.iter_mut().zip([(20.0, 21.0), (20.0, 80.0), (81.0, 80.0)])
        {
            run.cache = Some(CacheDistance::new(Some(before), Some(after), TYPICAL_FAR));
        }
        report.set_cache_states();
        let states: Vec<_> = report.benchmarks[0].candidates[0].points[0].runs[..3]
            .iter()
            .map(|run| run.cache.map(|cache| cache.state))
            .collect();
        use CacheState::{Changed, Far, Near};
        assert_eq!(states, [Some(Near), Some(Changed), Some(Far)]);
        assert!(report.about.cache_threshold.is_some_and(|far| (21.0..80.0).contains(&far)));
    }
}
