//! Comparisons of figures, their targets, and whether they pass.

use serde::{Deserialize, Serialize};

use super::{BenchmarkResult, Figure, Summary};

/// A line of the table: a figure of ours, beside another candidate's or by itself.
///
/// ```
/// use roce_bench::report::{Figure, Comparison};
/// let comparison = Comparison::beside("roce", Figure::Gbits, "cubic").at_least(1.1);
/// assert_eq!(comparison.in_words(), "≥ 1.10 ×");
/// let comparison = Comparison::alone("roce", Figure::PerSecond).at_least(4e6);
/// assert_eq!(comparison.in_words(), "≥ 4.00 M/s");
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The candidate that is evaluated, by name.
    pub ours: String,
    /// What is compared.
    pub figure: Figure,
    /// The candidate it is compared with; without one the figure itself is evaluated.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub beside: Option<String>,
    /// Where on the benchmark's axis; without one, the benchmark has none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub at: Option<u64>,
    /// The target; without one the line is only shown.
    #[serde(rename = "bound", skip_serializing_if = "Option::is_none", default)]
    pub target: Option<Target>,
}

/// What a ratio or a figure must reach.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// No less.
    AtLeast(f64),
    /// No more.
    AtMost(f64),
    /// Less.
    Below(f64),
    /// More.
    Above(f64),
}

/// The result of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The target is reached.
    Pass,
    /// The target is missed.
    Fail,
    /// There is no target.
    NoTarget,
    /// A candidate gave no figure, for this reason.
    NotMeasured(String),
}

/// A line of the table with its numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    /// Ours.
    pub ours: Option<Summary>,
    /// Theirs.
    pub theirs: Option<Summary>,
    /// Ours in units of theirs.
    pub ratio: Option<Summary>,
    /// The result.
    pub verdict: Verdict,
}

impl Comparison {
    /// Compares ours with another candidate's, as a ratio.
    pub fn beside(ours: &str, figure: Figure, beside: &str) -> Self {
        Self { beside: Some(beside.to_owned()), ..Self::alone(ours, figure) }
    }

    /// Compares ours with its target alone.
    pub fn alone(ours: &str, figure: Figure) -> Self {
        Self { ours: ours.to_owned(), figure, beside: None, at: None, target: None }
    }

    /// At one place of the benchmark's axis.
    #[must_use]
    pub fn at(self, x: u64) -> Self {
        Self { at: Some(x), ..self }
    }

    /// Sets a target: no less than this.
    #[must_use]
    pub fn at_least(self, least: f64) -> Self {
        Self { target: Some(Target::AtLeast(least)), ..self }
    }

    /// Sets a target: no more than this.
    #[must_use]
    pub fn at_most(self, most: f64) -> Self {
        Self { target: Some(Target::AtMost(most)), ..self }
    }

    /// Sets a target: less than this.
    #[must_use]
    pub fn below(self, limit: f64) -> Self {
        Self { target: Some(Target::Below(limit)), ..self }
    }

    /// Sets a target: more than this.
    #[must_use]
    pub fn above(self, limit: f64) -> Self {
        Self { target: Some(Target::Above(limit)), ..self }
    }

    /// The target as the table shows it; empty without one.
    pub fn in_words(&self) -> String {
        let say = |value: f64| match &self.beside {
            Some(_) => format!("{value:.2} ×"),
            None => self.figure.with_unit(value),
        };
        match self.target {
            None => String::new(),
            Some(Target::AtLeast(value)) => format!("≥ {}", say(value)),
            Some(Target::AtMost(value)) => format!("≤ {}", say(value)),
            Some(Target::Below(value)) => format!("< {}", say(value)),
            Some(Target::Above(value)) => format!("> {}", say(value)),
        }
    }

    /// Compares the measured figures with the target.
    pub fn evaluate(&self, benchmark: &BenchmarkResult) -> Evaluation {
        let ours = benchmark.measured(&self.ours, self.at, self.figure);
        let theirs =
            self.beside.as_ref().map(|name| benchmark.measured(name, self.at, self.figure));
        let summary = |all: &[(u32, f64)]| Summary::of(all.iter().map(|(_, value)| *value));
        let ratio = theirs.as_ref().and_then(|theirs| Summary::ratio(&ours, theirs));
        let evaluated = if theirs.is_some() { ratio } else { summary(&ours) };
        let verdict = match (self.target, evaluated) {
            (_, None) => Verdict::NotMeasured(self.why_not(benchmark, ours.is_empty())),
            (None, Some(_)) => Verdict::NoTarget,
            (Some(target), Some(value)) if target.holds(value.median) => Verdict::Pass,
            _ => Verdict::Fail,
        };
        let (ours, theirs) = (summary(&ours), theirs.and_then(|theirs| summary(&theirs)));
        Evaluation { ours, theirs, ratio, verdict }
    }

    fn why_not(&self, benchmark: &BenchmarkResult, ours_is_missing: bool) -> String {
        let name = match &self.beside {
            Some(name) if !ours_is_missing => name,
            _ => &self.ours,
        };
        match benchmark.candidate(name) {
            None => format!("no {name} in this benchmark"),
            Some(candidate) => match (&candidate.missing, candidate.first_failure()) {
                (Some(why), _) => why.clone(),
                (None, Some(_)) => format!("{} failed", candidate.title),
                (None, None) => format!("{} says nothing of {}", candidate.title, self.figure),
            },
        }
    }
}

impl Target {
    /// Returns true if a value reaches the target.
    pub fn holds(self, value: f64) -> bool {
        match self {
            Self::AtLeast(least) => value >= least,
            Self::AtMost(most) => value <= most,
            Self::Below(limit) => value < limit,
            Self::Above(limit) => value > limit,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::example;

    #[test]
    fn a_bound_holds_up_to_its_edge_or_not() {
        let targets =
            [Target::AtLeast(2.0), Target::AtMost(2.0), Target::Above(2.0), Target::Below(2.0)];
        assert_eq!(targets.map(|target| target.holds(1.0)), [false, true, false, true]);
        assert_eq!(targets.map(|target| target.holds(2.0)), [true, true, false, false]);
        assert_eq!(targets.map(|target| target.holds(3.0)), [true, false, true, false]);
    }

    #[test]
    fn the_ratio_is_judged_where_there_is_one_and_the_figure_where_not() {
        let benchmark = example::benchmark(); // ours 40, 50, 45; theirs 30, 40, 36
        let comparison = Comparison::beside("roce", Figure::Gbits, "cubic");
        assert_eq!(comparison.clone().at_least(1.25).evaluate(&benchmark).verdict, Verdict::Pass);
        assert_eq!(comparison.clone().at_least(1.26).evaluate(&benchmark).verdict, Verdict::Fail);
        assert_eq!(comparison.evaluate(&benchmark).verdict, Verdict::NoTarget);
        let alone = Comparison::alone("roce", Figure::Gbits);
        assert_eq!(alone.clone().at_least(45.0).evaluate(&benchmark).verdict, Verdict::Pass);
        assert_eq!(alone.above(45.0).evaluate(&benchmark).verdict, Verdict::Fail);
    }

    #[test]
    fn what_is_missing_is_not_judged_and_the_reason_is_the_missing_ones() {
        let benchmark = example::benchmark();
        let verdict = |ours, figure, beside| {
            Comparison::beside(ours, figure, beside).evaluate(&benchmark).verdict
        };
        let why = |text: &str| Verdict::NotMeasured(text.to_owned());
        assert_eq!(verdict("roce", Figure::Gbits, "raw"), why("raw_trains is not built"));
        assert_eq!(verdict("roce", Figure::Gbits, "bbr"), why("TCP, BBR failed"));
        assert_eq!(verdict("raw", Figure::Gbits, "cubic"), why("raw_trains is not built"));
        assert_eq!(verdict("roce", Figure::Gbits, "absent"), why("no absent in this benchmark"));
        let silent = verdict("roce", Figure::Bytes, "cubic");
        assert_eq!(silent, why("roce says nothing of resident memory"));
    }
}
