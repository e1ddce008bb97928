//! Statements about figures, and figures in text.

use std::collections::BTreeMap;

use super::{Figure, TrialRun};
use crate::lesson::{LessonError, Rate, Span};

type Trials = BTreeMap<String, TrialRun>;

/// Checks a statement: `side < side`, or `<=`, `>`, `>=`, `=`. A side is a figure `trial.name`, a
/// number, a time (`5us`) or a rate (`10G`), or a number and a figure: `2 * trial.name`.
pub(crate) fn check(section: usize, statement: &str, trials: &Trials) -> Result<(), LessonError> {
    let unknown = |name: &str| LessonError::Unknown {
        section,
        what: "figure or comparison",
        name: name.to_owned(),
    };
    let operators = [" <= ", " >= ", " < ", " > ", " = "];
    let found = operators.iter().find_map(|it| Some((it.trim(), statement.split_once(it)?)));
    let (operator, (left, right)) = found.ok_or_else(|| unknown(statement))?;
    let side = |text: &str| side(text, trials).ok_or_else(|| unknown(text));
    let (left, right) = (side(left)?, side(right)?);
    let holds = match operator {
        "<=" => left <= right,
        ">=" => left >= right,
        "<" => left < right,
        ">" => left > right,
        _ => left == right,
    };
    if holds {
        return Ok(());
    }
    let why = format!("{left} and {right}");
    Err(LessonError::False { section, statement: statement.to_owned(), why })
}

fn side(text: &str, trials: &Trials) -> Option<f64> {
    if let Some((factor, rest)) = text.split_once(" * ") {
        return Some(factor.trim().parse::<f64>().ok()? * side(rest, trials)?);
    }
    let text = text.trim();
    let figure = find(text, trials).map(|it| it.value);
    let number = || text.parse::<f64>().ok();
    let time = || Some(text.parse::<Span>().ok()?.duration().as_nanos() as f64);
    let rate = || Some(text.parse::<Rate>().ok()?.bits_per_sec() as f64);
    figure.or_else(number).or_else(time).or_else(rate)
}

fn find(name: &str, trials: &Trials) -> Option<Figure> {
    let (trial, figure) = name.split_once('.')?;
    trials.get(trial)?.figures.get(figure).copied()
}

/// Returns the text with the values of all `{trial.figure}`.
pub(crate) fn fill(section: usize, text: &str, trials: &Trials) -> Result<String, LessonError> {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('{') {
        let (name, after) = behind.split_once('}').unwrap_or((behind, ""));
        let figure = find(name, trials).ok_or_else(|| LessonError::Unknown {
            section,
            what: "figure",
            name: name.to_owned(),
        })?;
        filled += before;
        filled += &figure.to_string();
        rest = after;
    }
    Ok(filled + rest)
}
