//! Statements.

use std::time::Duration;

use roce_dissect::{Filter, NamedField};

use super::error::ScriptError;
use super::limits::parse_time;
use super::send_step::SendStep;
use super::step::Step;
use super::variables::{self, Variables};

/// A statement with its variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Statement {
    /// Line, from 1.
    pub(super) line: usize,
    /// Text without comment.
    pub(super) text: String,
}

impl Statement {
    /// Parses a line; `None` for one without statement.
    pub(super) fn parse(line: usize, text: &str) -> Result<Option<Self>, ScriptError> {
        let text = without_comment(text).trim();
        if text.is_empty() {
            return Ok(None);
        }
        if text.chars().any(|it| it.is_control() && it != '\t') {
            return Err(ScriptError::new(line, "a statement has no control characters"));
        }
        Ok(Some(Self { line, text: text.to_owned() }))
    }

    /// Returns the step with the values of its variables.
    pub(super) fn resolve(&self, variables: &mut Variables) -> Result<Step, ScriptError> {
        self.try_resolve(variables).map_err(|message| ScriptError::new(self.line, message))
    }

    fn try_resolve(&self, variables: &mut Variables) -> Result<Step, String> {
        let (verb, rest) = split_word(&self.text);
        let filled = variables.fill(rest)?;
        match verb {
            "let" => {
                let (name, _) = assignment(rest, "let psn = 0x000010")?;
                let (_, value) = assignment(&filled, "let psn = 0x000010")?;
                variables.set(name, value)?;
                Ok(Step::Let)
            }
            "send" => Ok(Step::Send(Box::new(SendStep::parse(&filled)?))),
            "expect" => {
                let (within, filter) = timed_filter(&filled, "within", Some(DEFAULT_WITHIN))?;
                Ok(Step::Expect { filter, within })
            }
            "forbid" => {
                let (during, filter) = timed_filter(&filled, "for", None)?;
                Ok(Step::Forbid { filter, during })
            }
            "take" => {
                let (name, field) = assignment(rest, "take msn = aeth.msn")?;
                variables::check_name(name)?;
                let field = NamedField::find(field).ok_or_else(|| {
                    let similar = NamedField::similar(field).join(", ");
                    format!("no field is called {field:?}; similar: {similar}")
                })?;
                Ok(Step::Take { name: name.to_owned(), field })
            }
            "wait" => Ok(Step::Wait(parse_time(filled.trim())?)),
            _ => {
                let verb: String = verb.chars().take(40).collect();
                Err(format!(
                    "{verb:?} is no statement; there are let, send, expect, forbid, take and wait"
                ))
            }
        }
    }
}

/// Returns a time and a filter: `WORD TIME: FILTER`, or `: FILTER` alone where there is a default.
fn timed_filter(
    text: &str,
    word: &str,
    default: Option<Duration>,
) -> Result<(Duration, Filter), String> {
    let form = match default {
        Some(_) => format!("write `{word} 1s: FILTER`, or `: FILTER`"),
        None => format!("write `{word} 200ms: FILTER`"),
    };
    let (time, filter) = text.split_once(": ").ok_or_else(|| form.clone())?;
    let time = match (split_word(time.trim()), default) {
        (("", _), Some(default)) => default,
        ((first, time), _) if first == word => parse_time(time.trim())?,
        _ => return Err(form),
    };
    let filter: Filter =
        filter.trim().parse().map_err(|it: roce_dissect::FilterError| it.to_string())?;
    Ok((time, filter))
}

/// Returns both sides of `NAME = VALUE`.
fn assignment<'a>(text: &'a str, example: &str) -> Result<(&'a str, &'a str), String> {
    let (name, value) = text.split_once('=').ok_or_else(|| format!("write `{example}`"))?;
    Ok((name.trim(), value.trim()))
}

/// Returns the first word and the rest; a colon ends a word.
fn split_word(text: &str) -> (&str, &str) {
    let end = text.find(|it: char| it.is_whitespace() || it == ':').unwrap_or(text.len());
    text.split_at(end)
}

/// Returns a line without the comment at its end. A `#` in quotes, or in a word, begins none.
fn without_comment(text: &str) -> &str {
    let (mut quote, mut before) = (None, ' ');
    for (at, letter) in text.char_indices() {
        match (quote, letter) {
            (Some(mark), letter) if mark == letter => quote = None,
            (None, '"' | '\'') => quote = Some(letter),
            (None, '#') if before.is_whitespace() => return &text[..at],
            _ => {}
        }
        before = letter;
    }
    text
}

const DEFAULT_WITHIN: Duration = Duration::from_secs(1);
