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
    use crate::report::Figure;
    use crate::suite::Candidate;

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
    fn the_table_of_a_full_run_has_at_most_sixty_rows_each_with_a_target() {
        let [full, _] = both();
        let rows: usize = full.iter().map(|benchmark| benchmark.comparisons.len()).sum();
        assert!((1..=60).contains(&rows), "{rows} rows");
        for benchmark in &full {
            for comparison in &benchmark.comparisons {
                assert!(comparison.target.is_some(), "{}: {comparison:?}", benchmark.name);
            }
            let is_plot = benchmark.axis.is_some();
            assert!(
                is_plot == benchmark.comparisons.is_empty(),
                "{}: a row or a plot",
                benchmark.name
            );
        }
    }

    #[test]
    fn a_row_compares_with_something_else_unless_nothing_has_such_a_cost() {
        let [full, _] = both();
        for benchmark in &full {
            for comparison in &benchmark.comparisons {
                let is_cost = matches!(comparison.figure, Figure::Bytes | Figure::Percent);
                assert_eq!(
                    comparison.beside.is_none(),
                    is_cost,
                    "{}: {comparison:?}",
                    benchmark.name
                );
            }
        }
    }

    #[test]
    fn programs_of_others_on_our_library_are_beside_their_form_over_tcp() {
        let [full, _] = both();
        let on_our_library =
            |candidate: &Candidate| candidate.needs.contains(&"roce") && candidate.needs.len() > 1;
        let mut found = BTreeSet::new();
        for benchmark in &full {
            for candidate in benchmark.candidates.iter().filter(|it| on_our_library(it)) {
                let is_beside_tcp = benchmark.comparisons.iter().any(|comparison| {
                    let beside = comparison.beside.as_ref();
                    let beside = benchmark
                        .candidates
                        .iter()
                        .find(|it| Some(it.name.as_ref()) == beside.map(String::as_str));
                    comparison.ours == candidate.name
                        && beside.is_some_and(|it| !it.needs.contains(&"roce"))
                });
                assert!(is_beside_tcp, "{}: {}", benchmark.name, candidate.title);
                found.extend(candidate.needs.iter().copied().filter(|it| *it != "roce"));
            }
        }
        for program in
            ["ib_write_bw", "ib_write_lat", "iperf3", "rstream", "allreduce_mpi", "allreduce_gloo"]
        {
            assert!(found.contains(program), "{program}");
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
