//! What was measured, and how it is told: JSON, a table, plots.
//!
//! A [`Report`] holds every figure of every run. Everything that is read (the table, the plots)
//! is made from it and from nothing else, so a kept `results.json` can be rendered again.
//!
//! ```
//! use roce_bench::report::{ContestantResult, Figure, PointResult, RowResult, Run, Target};
//! let run = |round, gbits| Run::good(round, [(Figure::Gbits, gbits)].into());
//! let contestant = |name: &str, gbits: [f64; 2]| ContestantResult {
//!     points: vec![PointResult { x: None, runs: vec![run(1, gbits[0]), run(2, gbits[1])] }],
//!     ..ContestantResult::named(name, name)
//! };
//! let row = RowResult {
//!     contestants: vec![contestant("roce", [44.0, 46.0]), contestant("cubic", [36.0, 36.0])],
//!     ..RowResult::named("write", "WRITE, 1 MiB")
//! };
//! let judged = Target::beside("roce", Figure::Gbits, "cubic").at_least(1.1).judge(&row);
//! assert_eq!(judged.ratio.map(|ratio| ratio.median), Some(1.25));
//! ```

mod figure;
mod json;
mod machine;
mod markdown;
mod plot;
mod statistics;
mod summary;
mod target;

pub use figure::{Figure, Figures};
pub use json::{read_json, write_json};
pub use machine::{About, Commit, Machine, date_and_time};
pub use markdown::table;
pub use plot::{Axis, Chart, Line, charts};
pub use statistics::Summary;
pub use summary::{put_between_markers, summary};
pub use target::{Bound, Judged, Target, Verdict};

use serde::{Deserialize, Serialize};

/// Everything that was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Where, when and how.
    pub about: About,
    /// The other programs, present or not.
    pub peers: Vec<Peer>,
    /// The rows, in the order of the table.
    pub rows: Vec<RowResult>,
}

/// Another program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// What it is started as.
    pub program: String,
    /// What it says of itself; `None` when it is not installed.
    pub version: Option<String>,
    /// What brings it: a package.
    pub package: String,
}

/// A row: several contestants on the same wire, in turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RowResult {
    /// Short, for `--only`.
    pub name: String,
    /// For people.
    pub title: String,
    /// The network, in words.
    pub wire: String,
    /// What the points of a curve are; rows that are no curve have none.
    pub axis: Option<Axis>,
    /// When it was measured, and with which code: parts of a report may be of different runs.
    pub measured: String,
    /// Who took part.
    pub contestants: Vec<ContestantResult>,
    /// What is wanted.
    pub targets: Vec<Target>,
    /// What a reader must know.
    pub notes: Vec<String>,
}

/// Somebody who took part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ContestantResult {
    /// Short: what targets name.
    pub name: String,
    /// For people.
    pub title: String,
    /// The command lines of its first run, server first.
    pub commands: Vec<String>,
    /// Why it took no part.
    pub missing: Option<String>,
    /// What it did at each point of the axis; a row without axis has one point.
    pub points: Vec<PointResult>,
}

/// All runs of one contestant at one point.
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
}

impl Run {
    /// A run that gave figures.
    pub fn good(round: u32, figures: Figures) -> Self {
        Self { round, figures, failure: None }
    }

    /// A run that failed, and why.
    pub fn failed(round: u32, why: impl Into<String>) -> Self {
        Self { round, figures: Figures::new(), failure: Some(why.into()) }
    }
}

impl RowResult {
    /// A row without contestants.
    pub fn named(name: &str, title: &str) -> Self {
        Self {
            name: name.to_owned(),
            title: title.to_owned(),
            wire: String::new(),
            axis: None,
            measured: String::new(),
            contestants: Vec::new(),
            targets: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// The contestant of this name.
    pub fn contestant(&self, name: &str) -> Option<&ContestantResult> {
        self.contestants.iter().find(|contestant| contestant.name == name)
    }

    /// What a contestant's runs gave at a point, with their rounds.
    pub fn measured(&self, name: &str, at: Option<u64>, figure: Figure) -> Vec<(u32, f64)> {
        let points = self.contestant(name).map_or(&[][..], |contestant| &contestant.points);
        let runs = points.iter().filter(|point| point.x == at).flat_map(|point| &point.runs);
        runs.filter_map(|run| Some((run.round, *run.figures.get(&figure)?))).collect()
    }

    /// The same, summed up.
    pub fn summary(&self, name: &str, at: Option<u64>, figure: Figure) -> Option<Summary> {
        Summary::of(self.measured(name, at, figure).into_iter().map(|(_, value)| value))
    }
}

impl ContestantResult {
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
    /// Takes over rows of an earlier report that this one has not; `order` names all rows there
    /// are, in the order of the table.
    pub fn complete_from(&mut self, earlier: Self, order: &[&str]) {
        let lacking =
            earlier.rows.into_iter().filter(|old| self.rows.iter().all(|new| new.name != old.name));
        let lacking: Vec<RowResult> = lacking.collect();
        self.rows.extend(lacking);
        let place = |row: &RowResult| order.iter().position(|name| *name == row.name);
        // Rows that are no more come last, rather than getting lost.
        self.rows.sort_by_key(|row| place(row).unwrap_or(usize::MAX));
    }
}

#[cfg(test)]
pub(crate) mod example {
    use super::*;

    pub(crate) fn contestant(name: &str, title: &str, gbits: &[f64]) -> ContestantResult {
        let runs = (1..)
            .zip(gbits)
            .map(|(round, gbits)| Run::good(round, [(Figure::Gbits, *gbits)].into()));
        let points = vec![PointResult { x: None, runs: runs.collect() }];
        ContestantResult { points, ..ContestantResult::named(name, title) }
    }

    /// Ours, one beside it, one that failed every time, one that is not there.
    pub(crate) fn row() -> RowResult {
        let mut broken = ContestantResult::named("bbr", "TCP, BBR");
        let runs = (1..=3).map(|round| Run::failed(round, "unable to set congestion control"));
        broken.points = vec![PointResult { x: None, runs: runs.collect() }];
        let mut absent = ContestantResult::named("raw", "raw trains");
        absent.missing = Some("raw_trains is not built".to_owned());
        RowResult {
            wire: "two hosts, MTU 4300".to_owned(),
            measured: "2026-11-21 16:00 UTC, 0123456789ab".to_owned(),
            contestants: vec![
                contestant("roce", "roce", &[40.0, 50.0, 45.0]),
                contestant("cubic", "TCP, cubic", &[30.0, 40.0, 36.0]),
                broken,
                absent,
            ],
            targets: vec![
                Target::beside("roce", Figure::Gbits, "cubic").at_least(1.1),
                Target::beside("roce", Figure::Gbits, "bbr").at_least(1.5),
                Target::beside("roce", Figure::Gbits, "raw").at_least(0.85),
            ],
            ..RowResult::named("write-4300", "WRITE, 1 MiB messages")
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
                rounds: 3,
                seconds: 1.0,
                quick: false,
                realtime: false,
            },
            peers: vec![
                Peer {
                    program: "iperf3".to_owned(),
                    version: Some("iperf 3.12".to_owned()),
                    package: "iperf3".to_owned(),
                },
                Peer {
                    program: "sockperf".to_owned(),
                    version: None,
                    package: "sockperf".to_owned(),
                },
            ],
            rows: vec![row()],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_counted_and_the_first_is_kept() {
        let row = example::row();
        let broken = row.contestant("bbr").unwrap();
        assert_eq!(broken.count(), (3, 3));
        assert_eq!(broken.first_failure(), Some("unable to set congestion control"));
        assert_eq!(row.contestant("roce").unwrap().count(), (3, 0));
    }

    #[test]
    fn a_part_measured_again_replaces_the_old_one_and_order_is_kept() {
        let report = |names: &[&str], measured: &str| Report {
            rows: names
                .iter()
                .map(|name| RowResult {
                    measured: measured.to_owned(),
                    ..RowResult::named(name, name)
                })
                .collect(),
            ..example::report()
        };
        let mut new = report(&["c", "a"], "new");
        new.complete_from(report(&["gone", "a", "b"], "old"), &["a", "b", "c"]);
        let rows: Vec<_> =
            new.rows.iter().map(|row| (row.name.as_str(), row.measured.as_str())).collect();
        assert_eq!(rows, [("a", "new"), ("b", "old"), ("c", "new"), ("gone", "old")]);
    }
}
