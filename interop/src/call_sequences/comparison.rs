//! Differences of two sequences.

use std::collections::BTreeMap;
use std::fmt;

use super::allowed::{Allowed, Place};
use super::output::{Ending, Sequence, Step};

/// The first difference of two sequences that no row allows.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The function that was called.
    pub call: String,
    /// What differs: a result by its name, or an effect and its name.
    pub field: String,
    /// What rxe has there; empty where it has nothing.
    pub rxe: String,
    /// What ours has there.
    pub ours: String,
    /// The line of the call on rxe.
    pub line: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { call, field, rxe, ours, line } = self;
        write!(f, "{call}: {field} is {rxe:?} with rxe, {ours:?} with ours\n    {line}")
    }
}

/// What comparing two sequences has shown.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Calls that were compared.
    pub calls: u64,
    /// A row that allows a difference ended the comparison, since later states differ.
    pub is_cut: bool,
    /// The first difference that no row allows.
    pub difference: Option<Difference>,
}

/// Compares a sequence on rxe with the same one on ours, and counts in `used` each row that a difference needed.
pub fn difference(allowed: &Allowed, rxe: &Sequence, ours: &Sequence, used: &mut [u64]) -> Outcome {
    let mut outcome = Outcome::default();
    for (index, theirs) in rxe.steps.iter().enumerate() {
        let Some(our) = ours.steps.get(index) else { break };
        outcome.calls += u64::from(theirs.call.contains('_'));
        for (field, rxe, ours) in of_steps(theirs, our) {
            let place = Place {
                call: &theirs.call,
                line: &theirs.line,
                field: &field,
                rxe: &rxe,
                ours: &ours,
            };
            match allowed.row(place) {
                Some(row) => {
                    used[row] += 1;
                    if allowed.rows[row].ends {
                        outcome.is_cut = true;
                        return outcome;
                    }
                }
                None => {
                    let (call, line) = (theirs.call.clone(), theirs.line.clone());
                    outcome.difference = Some(Difference { call, field, rxe, ours, line });
                    return outcome;
                }
            }
        }
    }
    if rxe.steps.len() != ours.steps.len() || rxe.ending != ours.ending {
        let call = rxe.steps.last().or(ours.steps.last()).map(|step| step.call.clone());
        let text = |it: &Sequence| format!("{:?} after {}", it.ending, it.last_line());
        outcome.difference = Some(Difference {
            call: call.unwrap_or_default(),
            field: "end".into(),
            rxe: text(rxe),
            ours: text(ours),
            line: String::new(),
        });
    }
    if rxe.ending == Ending::Cut {
        outcome.difference = None;
    }
    outcome
}

/// Returns the fields that differ, with both values.
fn of_steps(rxe: &Step, ours: &Step) -> Vec<(String, String, String)> {
    if (&rxe.call, &rxe.arguments) != (&ours.call, &ours.arguments) {
        return vec![("arguments".into(), rxe.line.clone(), ours.line.clone())];
    }
    let (theirs, our) = (rxe.results.get("ret"), ours.results.get("ret"));
    if theirs != our {
        let text = |it: Option<&String>| it.cloned().unwrap_or_default();
        return vec![("ret".into(), text(theirs), text(our))];
    }
    let mut found = of_words("", &rxe.results, &ours.results);
    let mut names: Vec<&String> = rxe.effects.keys().chain(ours.effects.keys()).collect();
    names.sort();
    names.dedup();
    for name in names {
        let kind = kind_of(name);
        match (rxe.effects.get(name), ours.effects.get(name)) {
            (Some(theirs), Some(our)) => found.extend(of_words(&kind, theirs, our)),
            (theirs, our) => {
                let text = |it: Option<&BTreeMap<String, String>>| match it {
                    Some(words) => {
                        let words = words.iter().map(|(name, value)| format!("{name}={value}"));
                        format!("{name} {}", words.collect::<Vec<_>>().join(" "))
                    }
                    None => String::new(),
                };
                found.push((kind, text(theirs), text(our)));
            }
        }
    }
    if found.is_empty() && rxe.order != ours.order {
        found.push(("order".into(), rxe.order.join(", "), ours.order.join(", ")));
    }
    found
}

/// Returns the kind of an effect by its name; that of a completion says of which queue it is: `completion.s`
/// of a send queue, `.r` of a receive queue, `.q` of a shared one.
fn kind_of(name: &str) -> String {
    let mut words = name.split(' ');
    let kind = words.next().unwrap_or_default();
    match (kind, words.nth(1).and_then(|request| request.chars().next())) {
        ("completion", Some(queue)) => format!("{kind}.{queue}"),
        _ => kind.to_owned(),
    }
}

fn of_words(
    kind: &str,
    rxe: &BTreeMap<String, String>,
    ours: &BTreeMap<String, String>,
) -> Vec<(String, String, String)> {
    let mut names: Vec<&String> = rxe.keys().chain(ours.keys()).collect();
    // The status decides which other words there are.
    names.sort_by_key(|name| (*name != "status", *name));
    names.dedup();
    let value =
        |of: &BTreeMap<String, String>, name: &String| of.get(name).cloned().unwrap_or_default();
    let differing = names.into_iter().filter(|name| rxe.get(*name) != ours.get(*name));
    let with_kind =
        |name: &String| if kind.is_empty() { name.clone() } else { format!("{kind}.{name}") };
    differing.map(|name| (with_kind(name), value(rxe, name), value(ours, name))).collect()
}
