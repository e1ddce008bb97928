//! The table of differences that are meant to be.

use std::path::Path;

use serde::Deserialize;

use crate::Fault;

/// The rows of `allowed.toml`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Allowed {
    /// Differences, each with its reason.
    #[serde(default, rename = "allowed")]
    pub rows: Vec<Row>,
    /// Functions that no sequence calls, by reason.
    #[serde(default, rename = "absent")]
    pub absent: Vec<Absent>,
    /// What the two ends of the sequences run on that are compared.
    #[serde(skip)]
    pub combination: Option<&'static str>,
}

/// A difference that is meant to be.
///
/// In texts `*` stands for any characters.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// The function.
    pub call: String,
    /// The result or effect.
    pub field: String,
    /// What rxe has; anything if it is not given.
    #[serde(default = "anything")]
    pub rxe: String,
    /// What ours has; anything if it is not given.
    #[serde(default = "anything")]
    pub ours: String,
    /// Words that the call's line on rxe, or the line of the effect, has, too.
    #[serde(default)]
    pub with: Vec<String>,
    /// What rxe has in an effect of the same call, with its name; nothing is asked for without it.
    #[serde(default)]
    pub beside: Option<String>,
    /// Sequences with two ends that it is for, by what these run on; without any it is for all sequences.
    #[serde(default)]
    pub combinations: Vec<String>,
    /// Later states differ, so that the comparison ends here.
    #[serde(default)]
    pub ends: bool,
    /// Why ours is meant to differ: which card, manual page or specification sides with it.
    pub reason: String,
}

/// Functions that no sequence calls.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Absent {
    /// The functions, in which `*` stands for any characters.
    pub calls: Vec<String>,
    /// Why.
    pub reason: String,
}

impl Absent {
    /// Returns true if a function is one of them.
    pub fn has(&self, function: &str) -> bool {
        self.calls.iter().any(|it| matches(it, function))
    }
}

/// A difference that was seen.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The function.
    pub call: &'a str,
    /// The call's line on rxe.
    pub line: &'a str,
    /// The words of the effect: on rxe, or on ours if rxe has none.
    pub effect: &'a str,
    /// The result or effect.
    pub field: &'a str,
    /// What rxe has.
    pub rxe: &'a str,
    /// What ours has.
    pub ours: &'a str,
    /// All effects of the call on rxe.
    pub beside: &'a [String],
}

impl Allowed {
    /// Reads the table of this workspace.
    ///
    /// # Errors
    /// When it cannot be read, with the line that is wrong.
    pub fn read() -> Result<Self, Fault> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("call_sequences/allowed.toml");
        let text = std::fs::read_to_string(&path)
            .map_err(|error| Fault::Wrong(format!("{}: {error}", path.display())))?;
        toml::from_str(&text).map_err(|error| Fault::Wrong(format!("{}: {error}", path.display())))
    }

    /// Returns the number of the first row that allows a difference.
    pub fn row(&self, place: Place<'_>) -> Option<usize> {
        self.rows.iter().position(|row| {
            let is_of_these = |it: &String| self.combination.is_some_and(|is| matches(it, is));
            (row.combinations.is_empty() || row.combinations.iter().any(is_of_these))
                && matches(&row.call, place.call)
                && matches(&row.field, place.field)
                && matches(&row.rxe, place.rxe)
                && matches(&row.ours, place.ours)
                && row.beside.as_ref().is_none_or(|pattern| {
                    place.beside.iter().any(|effect| matches(pattern, effect))
                })
                && row.with.iter().all(|word| {
                    let mut words = place.line.split(' ').chain(place.effect.split(' '));
                    words.any(|it| matches(word, it))
                })
        })
    }
}

fn anything() -> String {
    "*".to_owned()
}

/// Returns true if a text is what a pattern says, in which `*` stands for any characters.
pub fn matches(pattern: &str, text: &str) -> bool {
    let Some((head, tail)) = pattern.split_once('*') else { return pattern == text };
    let Some(rest) = text.strip_prefix(head) else { return false };
    (0..=rest.len()).any(|at| rest.is_char_boundary(at) && matches(tail, &rest[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_characters() {
        assert!(
            matches("a*c", "abbc") && matches("*", "") && matches("a*", "a") && matches("x", "x")
        );
        assert!(!matches("a*c", "abcd") && !matches("x", "xy") && !matches("", "x"));
    }

    #[test]
    fn a_row_wants_its_words_in_the_call_or_in_the_effect() {
        let row =
            "[[allowed]]\ncall = \"poll\"\nfield = \"status\"\nwith = [\"type=3\"]\nreason = \"\"";
        let allowed: Allowed = toml::from_str(row).unwrap();
        let row = |line, effect| {
            let (field, rxe, ours) = ("status", "5", "0");
            allowed.row(Place { call: "poll", line, effect, field, rxe, ours, beside: &[] })
        };
        assert_eq!(row("poll type=3", "status=5"), Some(0));
        assert_eq!(row("poll", "status=5 type=3"), Some(0));
        assert_eq!(row("poll", "status=5 type=33"), None);
    }

    #[test]
    fn a_row_may_want_another_effect_beside_the_one_that_differs() {
        let row = "[[allowed]]\ncall = \"c\"\nfield = \"f\"\nbeside = \"completion * status=2\"\nreason = \"\"";
        let allowed: Allowed = toml::from_str(row).unwrap();
        let row = |beside: &[String]| {
            let (call, line, effect, field, rxe, ours) = ("c", "", "", "f", "", "");
            allowed.row(Place { call, line, effect, field, rxe, ours, beside })
        };
        assert_eq!(row(&[]), None);
        assert_eq!(row(&["completion r0.1 status=5".to_owned()]), None);
        assert_eq!(row(&["memory m0".to_owned(), "completion r0.1 status=2".to_owned()]), Some(0));
    }

    #[test]
    fn a_row_of_a_combination_is_for_the_sequences_of_that_alone() {
        let row =
            "[[allowed]]\ncall = \"c\"\nfield = \"f\"\ncombinations = [\"ours *\"]\nreason = \"\"";
        let mut allowed: Allowed = toml::from_str(row).unwrap();
        let beside = &[];
        let place =
            Place { call: "c", line: "", effect: "", field: "f", rxe: "", ours: "", beside };
        assert_eq!(allowed.row(place), None, "that has no second end");
        allowed.combination = Some("rxe ours");
        assert_eq!(allowed.row(place), None);
        allowed.combination = Some("ours rxe");
        assert_eq!(allowed.row(place), Some(0));
    }

    #[test]
    fn every_row_of_the_table_has_a_reason() {
        let allowed = Allowed::read().unwrap();
        assert!(allowed.rows.iter().all(|row| row.reason.len() > 20), "a reason is a sentence");
        assert!(allowed.absent.iter().all(|it| it.reason.len() > 10));
    }
}
