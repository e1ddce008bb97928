//! What is wanted of a figure, and whether it was reached.

use serde::{Deserialize, Serialize};

use super::{Figure, RowResult, Summary};

/// One line of the table: a figure of ours, beside somebody else's or by itself.
///
/// ```
/// use roce_bench::report::{Figure, Target};
/// let target = Target::beside("roce", Figure::Gbits, "cubic").at_least(1.1);
/// assert_eq!(target.in_words(), "≥ 1.10 ×");
/// let target = Target::alone("roce", Figure::PerSecond).at_least(4e6);
/// assert_eq!(target.in_words(), "≥ 4.00 M/s");
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// The contestant that is judged, by name.
    pub ours: String,
    /// What is compared.
    pub figure: Figure,
    /// The contestant it is compared with; without one the figure itself is judged.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub beside: Option<String>,
    /// Where on the row's axis; without one, the row has none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub at: Option<u64>,
    /// What is wanted; without it the line is there to be seen.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bound: Option<Bound>,
}

/// What is wanted of a ratio or a figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// No less.
    AtLeast(f64),
    /// No more.
    AtMost(f64),
    /// Less.
    Below(f64),
    /// More.
    Above(f64),
}

/// How a line of the table came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As wanted.
    Met,
    /// Not as wanted.
    NotMet,
    /// Nothing is wanted.
    Reported,
    /// Somebody gave no figure, and this is why.
    NotJudged(String),
}

/// A line of the table with its numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// Ours.
    pub ours: Option<Summary>,
    /// Theirs.
    pub theirs: Option<Summary>,
    /// Ours in units of theirs.
    pub ratio: Option<Summary>,
    /// How it came out.
    pub verdict: Verdict,
}

impl Target {
    /// Ours in units of somebody else's.
    pub fn beside(ours: &str, figure: Figure, beside: &str) -> Self {
        Self { beside: Some(beside.to_owned()), ..Self::alone(ours, figure) }
    }

    /// Ours by itself.
    pub fn alone(ours: &str, figure: Figure) -> Self {
        Self { ours: ours.to_owned(), figure, beside: None, at: None, bound: None }
    }

    /// At one place of the row's axis.
    #[must_use]
    pub fn at(self, x: u64) -> Self {
        Self { at: Some(x), ..self }
    }

    /// No less than this is wanted.
    #[must_use]
    pub fn at_least(self, least: f64) -> Self {
        Self { bound: Some(Bound::AtLeast(least)), ..self }
    }

    /// No more than this is wanted.
    #[must_use]
    pub fn at_most(self, most: f64) -> Self {
        Self { bound: Some(Bound::AtMost(most)), ..self }
    }

    /// Less than this is wanted.
    #[must_use]
    pub fn below(self, limit: f64) -> Self {
        Self { bound: Some(Bound::Below(limit)), ..self }
    }

    /// More than this is wanted.
    #[must_use]
    pub fn above(self, limit: f64) -> Self {
        Self { bound: Some(Bound::Above(limit)), ..self }
    }

    /// What is wanted, as the table says it; empty when nothing is.
    pub fn in_words(&self) -> String {
        let say = |value: f64| match &self.beside {
            Some(_) => format!("{value:.2} ×"),
            None => self.figure.with_unit(value),
        };
        match self.bound {
            None => String::new(),
            Some(Bound::AtLeast(value)) => format!("≥ {}", say(value)),
            Some(Bound::AtMost(value)) => format!("≤ {}", say(value)),
            Some(Bound::Below(value)) => format!("< {}", say(value)),
            Some(Bound::Above(value)) => format!("> {}", say(value)),
        }
    }

    /// Compares what was measured with what is wanted.
    pub fn judge(&self, row: &RowResult) -> Judged {
        let ours = row.measured(&self.ours, self.at, self.figure);
        let theirs = self.beside.as_ref().map(|name| row.measured(name, self.at, self.figure));
        let summary = |all: &[(u32, f64)]| Summary::of(all.iter().map(|(_, value)| *value));
        let ratio = theirs.as_ref().and_then(|theirs| Summary::ratio(&ours, theirs));
        let judged = if theirs.is_some() { ratio } else { summary(&ours) };
        let verdict = match (self.bound, judged) {
            (_, None) => Verdict::NotJudged(self.why_not(row, ours.is_empty())),
            (None, Some(_)) => Verdict::Reported,
            (Some(bound), Some(value)) if bound.holds(value.median) => Verdict::Met,
            _ => Verdict::NotMet,
        };
        let (ours, theirs) = (summary(&ours), theirs.and_then(|theirs| summary(&theirs)));
        Judged { ours, theirs, ratio, verdict }
    }

    fn why_not(&self, row: &RowResult, ours_is_missing: bool) -> String {
        let name = match &self.beside {
            Some(name) if !ours_is_missing => name,
            _ => &self.ours,
        };
        match row.contestant(name) {
            None => format!("no {name} in this row"),
            Some(contestant) => match (&contestant.missing, contestant.first_failure()) {
                (Some(why), _) => why.clone(),
                (None, Some(_)) => format!("{} failed", contestant.title),
                (None, None) => format!("{} says nothing of {}", contestant.title, self.figure),
            },
        }
    }
}

impl Bound {
    /// Whether a value is as wanted.
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
        let bounds =
            [Bound::AtLeast(2.0), Bound::AtMost(2.0), Bound::Above(2.0), Bound::Below(2.0)];
        assert_eq!(bounds.map(|bound| bound.holds(1.0)), [false, true, false, true]);
        assert_eq!(bounds.map(|bound| bound.holds(2.0)), [true, true, false, false]);
        assert_eq!(bounds.map(|bound| bound.holds(3.0)), [true, false, true, false]);
    }

    #[test]
    fn the_ratio_is_judged_where_there_is_one_and_the_figure_where_not() {
        let row = example::row(); // ours 40, 50, 45; theirs 30, 40, 36
        let target = Target::beside("roce", Figure::Gbits, "cubic");
        assert_eq!(target.clone().at_least(1.25).judge(&row).verdict, Verdict::Met);
        assert_eq!(target.clone().at_least(1.26).judge(&row).verdict, Verdict::NotMet);
        assert_eq!(target.judge(&row).verdict, Verdict::Reported);
        let alone = Target::alone("roce", Figure::Gbits);
        assert_eq!(alone.clone().at_least(45.0).judge(&row).verdict, Verdict::Met);
        assert_eq!(alone.above(45.0).judge(&row).verdict, Verdict::NotMet);
    }

    #[test]
    fn what_is_missing_is_not_judged_and_the_reason_is_the_missing_ones() {
        let row = example::row();
        let verdict =
            |ours, figure, beside| Target::beside(ours, figure, beside).judge(&row).verdict;
        let why = |text: &str| Verdict::NotJudged(text.to_owned());
        assert_eq!(verdict("roce", Figure::Gbits, "raw"), why("raw_trains is not built"));
        assert_eq!(verdict("roce", Figure::Gbits, "bbr"), why("TCP, BBR failed"));
        assert_eq!(verdict("raw", Figure::Gbits, "cubic"), why("raw_trains is not built"));
        assert_eq!(verdict("roce", Figure::Gbits, "nobody"), why("no nobody in this row"));
        let silent = verdict("roce", Figure::Bytes, "cubic");
        assert_eq!(silent, why("roce says nothing of resident memory"));
    }
}
