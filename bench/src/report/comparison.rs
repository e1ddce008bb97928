//! Comparisons of figures, their targets, and whether they pass.

use serde::{Deserialize, Serialize};

use super::{BenchmarkResult, CacheState, Figure, Interval, Sample, Summary, pairs};

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
    /// The whole interval is on the right side of the target.
    Pass,
    /// The whole interval is on the wrong side of the target.
    Fail,
    /// The interval has the target inside, or is of too few runs to decide.
    Open,
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
    /// Ours in units of theirs: of runs in the same state of the machine.
    pub ratio: Option<Interval>,
    /// The same by state, where at least two states have enough runs.
    pub by_state: Vec<(CacheState, Interval)>,
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
    ///
    /// Runs are compared with runs in the same state of the machine: see [`pairs`](super::pairs()). The
    /// interval of the ratio decides, or without another candidate that of the figure.
    pub fn evaluate(&self, benchmark: &BenchmarkResult) -> Evaluation {
        let ours = benchmark.measured(&self.ours, self.at, self.figure);
        let theirs =
            self.beside.as_ref().map(|name| benchmark.measured(name, self.at, self.figure));
        let pairs = theirs.as_ref().map(|theirs| pairs(&ours, theirs));
        let ratio = pairs.as_ref().and_then(|all| Interval::of(all.iter().map(|pair| pair.ratio)));
        let evaluated = match &theirs {
            Some(_) => ratio,
            None => Interval::of(ours.iter().map(|sample| sample.value)),
        };
        let verdict = match (self.target, evaluated) {
            (_, None) => Verdict::NotMeasured(match &pairs {
                Some(pairs) if !pairs.is_empty() => "a figure is zero".to_owned(),
                _ => self.why_not(benchmark, &ours, theirs.as_deref()),
            }),
            (None, Some(_)) => Verdict::NoTarget,
            (Some(target), Some(interval)) => target.judge(&interval),
        };
        let by_state = pairs.map_or_else(Vec::new, |pairs| {
            let of = |state| {
                let its =
                    pairs.iter().filter(|pair| pair.state == Some(state)).map(|pair| pair.ratio);
                Some((state, Interval::of(its).filter(Interval::is_confident)?))
            };
            [CacheState::Near, CacheState::Far].into_iter().filter_map(of).collect()
        });
        let by_state = if by_state.len() > 1 { by_state } else { Vec::new() };
        let summary = |all: &[Sample]| Summary::of(all.iter().map(|sample| sample.value));
        let (ours, theirs) = (summary(&ours), theirs.and_then(|theirs| summary(&theirs)));
        Evaluation { ours, theirs, ratio, by_state, verdict }
    }

    fn why_not(
        &self,
        benchmark: &BenchmarkResult,
        ours: &[Sample],
        theirs: Option<&[Sample]>,
    ) -> String {
        let name = match (&self.beside, theirs) {
            (Some(_), Some(theirs)) if !ours.is_empty() && !theirs.is_empty() => {
                return "no two runs in the same state of the machine".to_owned();
            }
            (Some(name), _) if !ours.is_empty() => name,
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
    /// Returns whether all of an interval reaches the target, or nothing of it.
    pub fn judge(self, interval: &Interval) -> Verdict {
        let ends = [self.holds(interval.low), self.holds(interval.high)];
        match ends {
            _ if !interval.is_confident() => Verdict::Open,
            [true, true] => Verdict::Pass,
            [false, false] => Verdict::Fail,
            _ => Verdict::Open,
        }
    }

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
    use crate::report::{CacheDistance, CandidateResult, PointResult, Run, example};

    #[test]
    fn a_bound_holds_up_to_its_edge_or_not() {
        let targets =
            [Target::AtLeast(2.0), Target::AtMost(2.0), Target::Above(2.0), Target::Below(2.0)];
        assert_eq!(targets.map(|target| target.holds(1.0)), [false, true, false, true]);
        assert_eq!(targets.map(|target| target.holds(2.0)), [true, true, false, false]);
        assert_eq!(targets.map(|target| target.holds(3.0)), [true, false, true, false]);
    }

    fn interval(low: f64, high: f64, count: usize) -> Interval {
        let middle = f64::midpoint(low, high);
        let mut values = vec![middle; count];
        (values[0], values[count - 1]) = (low, high);
        Interval::of(values).unwrap()
    }

    #[test]
    fn a_target_is_reached_or_missed_by_the_whole_interval() {
        let judge = |target: Target, low, high| target.judge(&interval(low, high, 5));
        for (target, good, bad) in [
            (Target::AtLeast(2.0), (2.0, 3.0), (1.0, 1.9)),
            (Target::AtMost(2.0), (1.0, 2.0), (2.1, 3.0)),
            (Target::Above(2.0), (2.1, 3.0), (1.0, 2.0)),
            (Target::Below(2.0), (1.0, 1.9), (2.0, 3.0)),
        ] {
            assert_eq!(judge(target, good.0, good.1), Verdict::Pass, "{target:?}");
            assert_eq!(judge(target, bad.0, bad.1), Verdict::Fail, "{target:?}");
            assert_eq!(judge(target, 1.5, 2.5), Verdict::Open, "{target:?}");
        }
    }

    #[test]
    fn too_few_runs_leave_a_target_open() {
        assert_eq!(Target::AtLeast(1.0).judge(&interval(5.0, 6.0, 4)), Verdict::Open);
        assert_eq!(Target::AtLeast(9.0).judge(&interval(5.0, 6.0, 4)), Verdict::Open);
        assert_eq!(Target::AtLeast(1.0).judge(&interval(5.0, 6.0, 5)), Verdict::Pass);
    }

    #[test]
    fn the_ratio_is_judged_where_there_is_one_and_the_figure_where_not() {
        // Ratios of 1.10 to 1.33, figures of 40 to 50.
        let benchmark = example::benchmark();
        let comparison = Comparison::beside("roce", Figure::Gbits, "cubic");
        let verdict = |target| comparison.clone().at_least(target).evaluate(&benchmark).verdict;
        assert_eq!([1.1, 1.2, 1.4].map(verdict), [Verdict::Pass, Verdict::Open, Verdict::Fail]);
        assert_eq!(comparison.evaluate(&benchmark).verdict, Verdict::NoTarget);
        let alone = Comparison::alone("roce", Figure::Gbits);
        let verdict = |target| alone.clone().above(target).evaluate(&benchmark).verdict;
        assert_eq!([39.0, 45.0, 50.0].map(verdict), [Verdict::Pass, Verdict::Open, Verdict::Fail]);
    }

    /// The example with a state for each run of ours and of TCP's.
    fn in_states(ours: [CacheState; 5], theirs: [CacheState; 5]) -> BenchmarkResult {
        let mut benchmark = example::benchmark();
        for (candidate, states) in benchmark.candidates.iter_mut().zip([ours, theirs]) {
            for (run, state) in candidate.points[0].runs.iter_mut().zip(states) {
                run.cache = Some(CacheDistance { before: None, after: None, state });
            }
        }
        benchmark
    }

    #[test]
    fn a_ratio_is_of_runs_in_the_same_state() {
        use CacheState::{Changed, Far, Near};
        let comparison = Comparison::beside("roce", Figure::Gbits, "cubic").at_least(1.0);
        // Round 3 has no pair, rounds 1 and 2 make one across.
        let benchmark = in_states([Near, Far, Changed, Near, Far], [Far, Near, Near, Near, Far]);
        let evaluated = comparison.evaluate(&benchmark);
        let ratio = evaluated.ratio.unwrap();
        assert_eq!((ratio.count, ratio.low, ratio.high), (4, 1.0, 50.0 / 30.0));
        assert_eq!(evaluated.verdict, Verdict::Open, "four pairs are too few");
        // The columns have all runs.
        assert_eq!(evaluated.ours.map(|ours| ours.count), Some(5));
        let evaluated = comparison.evaluate(&in_states([Near; 5], [Far; 5]));
        let why = "no two runs in the same state of the machine".to_owned();
        assert_eq!(evaluated.verdict, Verdict::NotMeasured(why));
        let mut nothing = example::benchmark();
        nothing.candidates[1].points[0].runs[0].figures.insert(Figure::Gbits, 0.0);
        let why = "a figure is zero".to_owned();
        assert_eq!(comparison.evaluate(&nothing).verdict, Verdict::NotMeasured(why));
    }

    #[test]
    fn a_ratio_is_told_by_state_if_both_states_have_enough_runs() {
        use CacheState::{Far, Near};
        let run = |round, gbits, state| {
            let mut run = Run::good(round, [(Figure::Gbits, gbits)].into());
            run.cache = Some(CacheDistance { before: None, after: None, state });
            run
        };
        let candidate = |name: &str, near: f64, far: u32| {
            let runs = (1..=5).map(|round| run(round, near, Near));
            let runs = runs.chain((6..6 + far).map(|round| run(round, 10.0, Far)));
            let points = vec![PointResult { x: None, runs: runs.collect() }];
            CandidateResult { points, ..CandidateResult::named(name, name) }
        };
        let by_state = |far| {
            let candidates = vec![candidate("roce", 30.0, far), candidate("cubic", 20.0, far)];
            let benchmark = BenchmarkResult { candidates, ..BenchmarkResult::named("b", "b") };
            let comparison = Comparison::beside("roce", Figure::Gbits, "cubic");
            let by_state = comparison.evaluate(&benchmark).by_state;
            by_state.iter().map(|(state, ratio)| (*state, ratio.median)).collect::<Vec<_>>()
        };
        assert_eq!(by_state(5), [(Near, 1.5), (Far, 1.0)]);
        assert_eq!(by_state(4), []);
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
