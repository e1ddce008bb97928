//! What was measured, and how it is told: JSON, a table, plots.
//!
//! A [`Report`] holds every figure of every run. Everything that is read (the table, the plots)
//! is made from it and from nothing else, so a kept `results.json` can be rendered again.
//!
//! ```
//! use roce_bench::report::{CandidateResult, Figure, PointResult, BenchmarkResult, Run, Comparison};
//! let run = |round, gbits| Run::good(round, [(Figure::Gbits, gbits)].into());
//! let candidate = |name: &str, gbits: [f64; 2]| CandidateResult {
//!     points: vec![PointResult { x: None, runs: vec![run(1, gbits[0]), run(2, gbits[1])] }],
//!     ..CandidateResult::named(name, name)
//! };
//! let benchmark = BenchmarkResult {
//!     candidates: vec![candidate("roce", [44.0, 46.0]), candidate("cubic", [36.0, 36.0])],
//!     ..BenchmarkResult::named("write", "WRITE, 1 MiB")
//! };
//! let evaluated = Comparison::beside("roce", Figure::Gbits, "cubic").at_least(1.1).evaluate(&benchmark);
//! assert_eq!(evaluated.ratio.map(|ratio| ratio.median), Some(1.25));
//! ```

mod cache_state;
mod comparison;
mod figure;
mod interval;
mod json;
mod machine;
mod markdown;
mod pairs;
mod plot;
mod states;
mod statistics;
mod summary;

pub use cache_state::{CacheDistance, CacheState, TYPICAL_FAR, threshold};
pub use comparison::{Comparison, Evaluation, Target, Verdict};
pub use figure::{Figure, Figures};
pub use interval::{Interval, MIN_CONFIDENCE};
pub use json::{read_json, write_json};
pub use machine::{About, Commit, Machine, date_and_time};
pub use markdown::table;
pub use pairs::{Pair, Sample, pairs};
pub use plot::{Axis, charts, to_svg};
pub use statistics::Summary;
pub use summary::{put_between_markers, summary};

use serde::{Deserialize, Serialize};

/// Everything that was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Where, when and how.
    pub about: About,
    /// The other programs, present or not.
    #[serde(rename = "peers")]
    pub external_programs: Vec<ExternalProgram>,
    /// The benchmarks, in the order of the table.
    #[serde(rename = "rows")]
    pub benchmarks: Vec<BenchmarkResult>,
}

/// Another program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExternalProgram {
    /// What it is started as.
    pub program: String,
    /// What it says of itself; `None` when it is not installed.
    pub version: Option<String>,
    /// What brings it: a package.
    pub package: String,
}

/// A benchmark: several candidates on the same topology, in turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BenchmarkResult {
    /// Short, for `--only`.
    pub name: String,
    /// For people.
    pub title: String,
    /// The network, in words.
    #[serde(rename = "wire")]
    pub topology: String,
    /// What the points of a curve are; benchmarks that are no curve have none.
    pub axis: Option<Axis>,
    /// When it was measured, and with which code: parts of a report may be of different runs.
    pub measured: String,
    /// The candidates, in the order of their turns.
    #[serde(rename = "contestants")]
    pub candidates: Vec<CandidateResult>,
    /// The lines of the table.
    #[serde(rename = "targets")]
    pub comparisons: Vec<Comparison>,
    /// Notes below the table.
    pub notes: Vec<String>,
}

/// A candidate with its runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CandidateResult {
    /// Short: what comparisons name.
    pub name: String,
    /// For people.
    pub title: String,
    /// The command lines of its first run, server first.
    pub commands: Vec<String>,
    /// Why it did not run.
    pub missing: Option<String>,
    /// What it did at each point of the axis; a benchmark without axis has one point.
    pub points: Vec<PointResult>,
}

/// All runs of one candidate at one point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PointResult {
    /// Where on the axis.
    pub x: Option<u64>,
    /// In the order of the rounds.
    pub runs: Vec<Run>,
}

/// One run: figures, or why there are none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// From 1.
    pub round: u32,
    /// Empty when it failed.
    pub figures: Figures,
    /// What it said.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub failure: Option<String>,
    /// How far the two processors were from each other around it; runs of older reports, and of machines with
    /// one processor, have none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cache: Option<CacheDistance>,
}

impl Run {
    /// A run that gave figures.
    pub fn good(round: u32, figures: Figures) -> Self {
        Self { round, figures, failure: None, cache: None }
    }

    /// A run that failed, and why.
    pub fn failed(round: u32, why: impl Into<String>) -> Self {
        Self { failure: Some(why.into()), ..Self::good(round, Figures::new()) }
    }

    /// The state of the machine in it, if it was probed.
    pub fn state(&self) -> Option<CacheState> {
        self.cache.map(|cache| cache.state)
    }
}

impl BenchmarkResult {
    /// A benchmark without candidates.
    pub fn named(name: &str, title: &str) -> Self {
        Self {
            name: name.to_owned(),
            title: title.to_owned(),
            topology: String::new(),
            axis: None,
            measured: String::new(),
            candidates: Vec::new(),
            comparisons: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// The candidate of this name.
    pub fn candidate(&self, name: &str) -> Option<&CandidateResult> {
        self.candidates.iter().find(|candidate| candidate.name == name)
    }

    /// What a candidate's runs gave at a point.
    pub fn measured(&self, name: &str, at: Option<u64>, figure: Figure) -> Vec<Sample> {
        let points = self.candidate(name).map_or(&[][..], |candidate| &candidate.points);
        let runs = points.iter().filter(|point| point.x == at).flat_map(|point| &point.runs);
        let sample = |run: &Run| {
            let value = *run.figures.get(&figure)?;
            Some(Sample { round: run.round, state: run.state(), value })
        };
        runs.filter_map(sample).collect()
    }

    /// The same, summed up.
    pub fn summary(&self, name: &str, at: Option<u64>, figure: Figure) -> Option<Summary> {
        Summary::of(self.measured(name, at, figure).into_iter().map(|sample| sample.value))
    }
}

impl CandidateResult {
    /// One that has not run yet.
    pub fn named(name: &str, title: &str) -> Self {
        Self {
            name: name.to_owned(),
            title: title.to_owned(),
            commands: Vec::new(),
            missing: None,
            points: Vec::new(),
        }
    }

    fn runs(&self) -> impl Iterator<Item = &Run> {
        self.points.iter().flat_map(|point| &point.runs)
    }

    /// How many runs there were, and how many of them failed.
    pub fn count(&self) -> (usize, usize) {
        (self.runs().count(), self.runs().filter(|run| run.failure.is_some()).count())
    }

    /// What the first run that failed said.
    pub fn first_failure(&self) -> Option<&str> {
        self.runs().find_map(|run| run.failure.as_deref())
    }
}

impl Report {
    /// Takes over benchmarks of an earlier report that this one has not; `order` names all
    /// benchmarks there are, in the order of the table.
    pub fn complete_from(&mut self, earlier: Self, order: &[&str]) {
        let lacking = earlier
            .benchmarks
            .into_iter()
            .filter(|old| self.benchmarks.iter().all(|new| new.name != old.name));
        let lacking: Vec<BenchmarkResult> = lacking.collect();
        self.benchmarks.extend(lacking);
        let place =
            |benchmark: &BenchmarkResult| order.iter().position(|name| *name == benchmark.name);
        // Rows that are no more come last, rather than getting lost.
        self.benchmarks.sort_by_key(|benchmark| place(benchmark).unwrap_or(usize::MAX));
    }
}

#[cfg(test)]
pub(crate) mod example {
    use super::*;

    pub(crate) fn candidate(name: &str, title: &str, gbits: &[f64]) -> CandidateResult {
        let runs = (1..)
            .zip(gbits)
            .map(|(round, gbits)| Run::good(round, [(Figure::Gbits, *gbits)].into()));
        let points = vec![PointResult { x: None, runs: runs.collect() }];
        CandidateResult { points, ..CandidateResult::named(name, title) }
    }

    /// Ours, one beside it, one that failed every time, one that is not there.
    pub(crate) fn benchmark() -> BenchmarkResult {
        let mut broken = CandidateResult::named("bbr", "TCP, BBR");
        let runs = (1..=5).map(|round| Run::failed(round, "unable to set congestion control"));
        broken.points = vec![PointResult { x: None, runs: runs.collect() }];
        let mut absent = CandidateResult::named("raw", "raw trains");
        absent.missing = Some("raw_trains is not built".to_owned());
        BenchmarkResult {
            topology: "two hosts, MTU 4300".to_owned(),
            measured: "2026-11-21 16:00 UTC, 0123456789ab".to_owned(),
            candidates: vec![
                candidate("roce", "roce", &[40.0, 50.0, 45.0, 48.0, 44.0]),
                candidate("cubic", "TCP, cubic", &[30.0, 40.0, 36.0, 36.0, 40.0]),
                broken,
                absent,
            ],
            comparisons: vec![
                Comparison::beside("roce", Figure::Gbits, "cubic").at_least(1.1),
                Comparison::beside("roce", Figure::Gbits, "bbr").at_least(1.5),
                Comparison::beside("roce", Figure::Gbits, "raw").at_least(0.85),
            ],
            ..BenchmarkResult::named("write-4300", "WRITE, 1 MiB messages")
        }
    }

    pub(crate) fn report() -> Report {
        Report {
            about: About {
                date: "2026-11-21 16:00 UTC".to_owned(),
                command: "cargo xtask bench".to_owned(),
                commit: Commit { id: "0123456789abcdef".to_owned(), changed: false },
                machine: Machine {
                    processor: "Example CPU".to_owned(),
                    cores: 2,
                    memory_bytes: 8 << 30,
                    kernel: "Linux 6.18".to_owned(),
                },
                rounds: 5,
                seconds: 1.0,
                quick: false,
                realtime: false,
                cache_threshold: None,
            },
            external_programs: vec![
                ExternalProgram {
                    program: "iperf3".to_owned(),
                    version: Some("iperf 3.12".to_owned()),
                    package: "iperf3".to_owned(),
                },
                ExternalProgram {
                    program: "sockperf".to_owned(),
                    version: None,
                    package: "sockperf".to_owned(),
                },
            ],
            benchmarks: vec![benchmark()],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_counted_and_the_first_is_kept() {
        let benchmark = example::benchmark();
        let broken = benchmark.candidate("bbr").unwrap();
        assert_eq!(broken.count(), (5, 5));
        assert_eq!(broken.first_failure(), Some("unable to set congestion control"));
        assert_eq!(benchmark.candidate("roce").unwrap().count(), (5, 0));
    }

    #[test]
    fn a_part_measured_again_replaces_the_old_one_and_order_is_kept() {
        let report = |names: &[&str], measured: &str| Report {
            benchmarks: names
                .iter()
                .map(|name| BenchmarkResult {
                    measured: measured.to_owned(),
                    ..BenchmarkResult::named(name, name)
                })
                .collect(),
            ..example::report()
        };
        let mut new = report(&["c", "a"], "new");
        new.complete_from(report(&["gone", "a", "b"], "old"), &["a", "b", "c"]);
        let benchmarks: Vec<_> = new
            .benchmarks
            .iter()
            .map(|benchmark| (benchmark.name.as_str(), benchmark.measured.as_str()))
            .collect();
        assert_eq!(benchmarks, [("a", "new"), ("b", "old"), ("c", "new"), ("gone", "old")]);
    }
}
