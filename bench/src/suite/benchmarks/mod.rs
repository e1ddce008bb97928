//! The benchmarks of the table, as data.

mod bandwidth;
mod busy;
mod collectives;
mod idle;
mod latency;
mod loss;
mod over_rdma_cm;
mod programs;
mod services;
mod sharing;

use super::{Benchmark, RunConfig};

/// All benchmarks, in the order of the table; a quick run has fewer points on its axes.
pub fn benchmarks(config: &RunConfig) -> Vec<Benchmark> {
    let mut all = bandwidth::benchmarks(config);
    all.extend(latency::benchmarks(config));
    all.extend(programs::benchmarks(config));
    all.extend(over_rdma_cm::benchmarks());
    all.extend(services::benchmarks());
    all.extend(collectives::benchmarks(config));
    all.extend(busy::benchmarks(config));
    all.extend(sharing::benchmarks(config));
    all.extend(loss::benchmarks(config));
    all.extend(idle::benchmarks(config));
    all
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn both() -> [Vec<Benchmark>; 2] {
        let config = RunConfig { rounds: 1, seconds: 1.0, quick: false, realtime: false };
        [benchmarks(&config), benchmarks(&RunConfig { quick: true, ..config })]
    }

    #[test]
    fn rows_have_names_of_their_own() {
        for all in both() {
            let names: BTreeSet<&str> = all.iter().map(|benchmark| benchmark.name).collect();
            assert_eq!(names.len(), all.len());
        }
    }

    #[test]
    fn every_comparison_names_candidates_that_run_there() {
        for benchmark in both().iter().flatten() {
            let runs_at = |name: &str, at: Option<u64>| {
                let found = benchmark.candidates.iter().find(|candidate| candidate.name == name);
                let points = benchmark.axis.as_ref().map(|(_, points)| points);
                let there = match (points, at) {
                    (None, None) => true,
                    (Some(points), Some(x)) => points.contains(&x),
                    _ => false,
                };
                there && found.is_some_and(|it| it.runs_at(at))
            };
            for comparison in &benchmark.comparisons {
                assert!(
                    runs_at(&comparison.ours, comparison.at),
                    "{}: {comparison:?}",
                    benchmark.name
                );
                let beside = comparison.beside.as_ref();
                assert!(
                    beside.is_none_or(|name| runs_at(name, comparison.at)),
                    "{}: {comparison:?}",
                    benchmark.name
                );
            }
        }
    }

    #[test]
    fn a_quick_run_has_the_targets_that_a_full_one_has() {
        let [full, quick] = both();
        let wanted = |benchmarks: &[Benchmark]| -> BTreeSet<String> {
            let comparisons = benchmarks.iter().flat_map(|benchmark| {
                let target =
                    benchmark.comparisons.iter().filter(|comparison| comparison.target.is_some());
                target.map(|comparison| format!("{}: {comparison:?}", benchmark.name))
            });
            comparisons.collect()
        };
        assert_eq!(wanted(&full), wanted(&quick));
    }
}
