//! This stack beside an older build of itself: what a change has made faster or slower.

use std::rc::Rc;

use super::{Benchmark, Candidate, Tools};
use crate::report::{BenchmarkResult, CandidateResult, Comparison, Figure};

impl Benchmark {
    /// Returns this benchmark with each candidate that runs this stack beside the same candidate with
    /// the programs of an older build, and with no others. `None` if no candidate runs this stack.
    ///
    /// The comparisons come with the figures: see [`compare_with_older`].
    ///
    /// ```
    /// use std::rc::Rc;
    /// use roce_bench::suite::{self, RunConfig, Tools};
    /// let older = Rc::new(Tools::find("older/target/release".as_ref()));
    /// let config = RunConfig { rounds: 10, seconds: 0.3, quick: true, realtime: false };
    /// let mut all = suite::benchmarks(&config).into_iter();
    /// let first = all.next().and_then(|first| first.beside_older(&older)).unwrap();
    /// let names: Vec<_> = first.candidates.iter().map(|it| it.name.as_ref()).collect();
    /// assert_eq!(names, ["roce", "roce, older"]);
    /// ```
    #[must_use]
    pub fn beside_older(self, older: &Rc<Tools>) -> Option<Self> {
        let ours = self.candidates.into_iter().filter(Candidate::runs_this_stack);
        let candidates: Vec<_> = ours
            .flat_map(|candidate| {
                let name = older_name(&candidate.name);
                let title = older_name(&candidate.title);
                let older = candidate.with_tools(name, title, Rc::clone(older));
                [candidate, older]
            })
            .collect();
        let is_empty = candidates.is_empty();
        (!is_empty).then_some(Self { candidates, comparisons: Vec::new(), ..self })
    }
}

/// Compares each candidate of a result with its older one: at every point, in each figure that says
/// how fast or how large it is. The target is what the older build reached, less [`TOLERANCE`].
pub fn compare_with_older(result: &mut BenchmarkResult) {
    let mut comparisons = Vec::new();
    for candidate in &result.candidates {
        let older = older_name(&candidate.name);
        if result.candidate(&older).is_none() {
            continue;
        }
        for point in &candidate.points {
            for figure in figures(candidate, point.x) {
                let comparison = Comparison::beside(&candidate.name, figure, &older);
                let comparison = Comparison { at: point.x, ..comparison };
                comparisons.push(match figure.is_better_when_larger() {
                    true => comparison.at_least(1.0 - TOLERANCE),
                    false => comparison.at_most(1.0 + TOLERANCE),
                });
            }
        }
    }
    result.comparisons = comparisons;
}

/// Returns the figures of a candidate that are compared: one of speed, and one of what it takes.
fn figures(candidate: &CandidateResult, x: Option<u64>) -> impl Iterator<Item = Figure> {
    let runs = candidate.points.iter().filter(move |point| point.x == x).flat_map(|it| &it.runs);
    let given: Vec<Figure> = runs.flat_map(|run| run.figures.keys().copied()).collect();
    // Messages a second say the same as their payload, and times the same as bus bandwidth, which is
    // next to nothing for one float.
    const SPEED: [Figure; 6] = [
        Figure::Gbits,
        Figure::PerSecond,
        Figure::Connections,
        Figure::MicrosMedian,
        Figure::MicrosMean,
        Figure::BusGbytes,
    ];
    const TAKEN: [Figure; 2] = [Figure::Bytes, Figure::Percent];
    let first = |of: &[Figure]| of.iter().copied().find(|figure| given.contains(figure));
    [first(&SPEED), first(&TAKEN)].into_iter().flatten()
}

fn older_name(name: &str) -> String {
    format!("{name}, older")
}

/// By how much a median may be worse than the older one before the comparison fails. Beside a spread of
/// the rounds that is wider, a failure says only where to measure again.
pub const TOLERANCE: f64 = 0.05;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::report::{PointResult, Run, Verdict};
    use crate::suite::{self, RunConfig};

    fn all_beside_older() -> Vec<Benchmark> {
        let config = RunConfig { rounds: 1, seconds: 1.0, quick: false, realtime: false };
        let older = Rc::new(Tools::find(Path::new("/nowhere")));
        suite::benchmarks(&config).into_iter().filter_map(|it| it.beside_older(&older)).collect()
    }

    #[test]
    fn every_benchmark_has_candidates_of_this_stack_and_none_of_others() {
        let config = RunConfig { rounds: 1, seconds: 1.0, quick: false, realtime: false };
        let all = all_beside_older();
        assert_eq!(all.len(), suite::benchmarks(&config).len());
        for benchmark in &all {
            assert!(benchmark.candidates.len().is_multiple_of(2), "{}", benchmark.name);
            for pair in benchmark.candidates.chunks(2) {
                assert!(pair[0].runs_this_stack(), "{}: {}", benchmark.name, pair[0].name);
                assert_eq!(pair[1].name, older_name(&pair[0].name));
            }
        }
    }

    fn result(ours: f64, older: f64, figure: Figure) -> BenchmarkResult {
        let candidate = |name: &str, value: f64| CandidateResult {
            points: vec![PointResult {
                x: Some(8),
                runs: (1..=5)
                    .map(|round| {
                        Run::good(round, [(figure, value), (Figure::Micros99, 9.0)].into())
                    })
                    .collect(),
            }],
            ..CandidateResult::named(name, name)
        };
        let candidates = vec![candidate("roce", ours), candidate("roce, older", older)];
        let mut result = BenchmarkResult { candidates, ..BenchmarkResult::named("b", "b") };
        compare_with_older(&mut result);
        result
    }

    #[test]
    fn what_is_slower_than_the_older_build_fails() {
        let verdict = |ours, older, figure| {
            let result = result(ours, older, figure);
            assert_eq!(result.comparisons.len(), 1);
            result.comparisons[0].evaluate(&result).verdict
        };
        assert_eq!(verdict(9.6, 10.0, Figure::Gbits), Verdict::Pass);
        assert_eq!(verdict(9.4, 10.0, Figure::Gbits), Verdict::Fail);
        assert_eq!(verdict(10.4, 10.0, Figure::MicrosMedian), Verdict::Pass);
        assert_eq!(verdict(10.6, 10.0, Figure::MicrosMedian), Verdict::Fail);
        assert_eq!(verdict(10.6, 10.0, Figure::Bytes), Verdict::Fail);
    }
}
