//! Differences of two sequences.

use std::collections::BTreeMap;
use std::fmt;

use super::allowed::{Allowed, Place};
use super::output::{Sequence, Step};

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

impl Difference {
    /// Returns that of a sequence that ends otherwise on ours, where `ours` says how.
    pub(super) fn of_end(rxe: &Sequence, ours: String) -> Self {
        let call = rxe.steps.last().map(|step| step.call.clone()).unwrap_or_default();
        Self { call, field: "end".into(), rxe: rxe.end(), ours, line: rxe.last_line() }
    }
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
    /// Lines that were compared: calls, and what one end prints while the other one calls.
    pub steps: usize,
    /// A row that allows a difference ended the comparison, since later states differ.
    pub is_cut: bool,
    /// The first difference that no row allows.
    pub difference: Option<Difference>,
}

impl Outcome {
    /// Returns that of a sequence which ours never printed.
    pub(super) fn of_missing(rxe: &Sequence) -> Self {
        let difference = Some(Difference::of_end(rxe, "nothing".into()));
        Self { difference, ..Self::default() }
    }
}

/// Compares a sequence on rxe with the same one on ours, and counts in `used` each row that a difference needed.
pub fn difference(allowed: &Allowed, rxe: &Sequence, ours: &Sequence, used: &mut [u64]) -> Outcome {
    let mut outcome = Outcome::default();
    for (index, theirs) in rxe.steps.iter().enumerate() {
        let Some(our) = ours.steps.get(index) else { break };
        outcome.calls += u64::from(theirs.call.contains('_'));
        outcome.steps += 1;
        for Differing { field, rxe, ours, effect } in of_steps(theirs, our) {
            let effects = theirs.effects.iter();
            let beside: Vec<String> =
                effects.map(|(name, words)| format!("{name} {}", text(words))).collect();
            let place = Place {
                call: &theirs.call,
                line: &theirs.line,
                effect: &effect,
                field: &field,
                rxe: &rxe,
                ours: &ours,
                beside: &beside,
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
        outcome.difference = Some(Difference::of_end(rxe, ours.end()));
    }
    outcome
}

/// A field that differs, with both values.
struct Differing {
    field: String,
    rxe: String,
    ours: String,
    /// The words of the effect, if it is one's field.
    effect: String,
}

impl Differing {
    fn of_call(field: &str, rxe: &str, ours: &str) -> Self {
        let [field, rxe, ours] = [field, rxe, ours].map(str::to_owned);
        Self { field, rxe, ours, effect: String::new() }
    }
}

/// Returns the fields that differ.
fn of_steps(rxe: &Step, ours: &Step) -> Vec<Differing> {
    if (&rxe.call, &rxe.arguments) != (&ours.call, &ours.arguments) {
        return vec![Differing::of_call("arguments", &rxe.line, &ours.line)];
    }
    let ret = |it: &Step| it.results.get("ret").cloned().unwrap_or_default();
    let (theirs, our) = (ret(rxe), ret(ours));
    if theirs != our {
        return vec![Differing::of_call("ret", &theirs, &our)];
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
                let whole = |it: Option<&BTreeMap<String, String>>| {
                    it.map_or(String::new(), |words| format!("{name} {}", text(words)))
                };
                let effect = theirs.or(our).map(text).unwrap_or_default();
                found.push(Differing { field: kind, rxe: whole(theirs), ours: whole(our), effect });
            }
        }
    }
    if found.is_empty() && rxe.order != ours.order {
        found.push(Differing::of_call("order", &rxe.order.join(", "), &ours.order.join(", ")));
    }
    found
}

/// Returns words as they were printed, in the order of their names.
fn text(words: &BTreeMap<String, String>) -> String {
    let words = words.iter().map(|(name, value)| format!("{name}={value}"));
    words.collect::<Vec<_>>().join(" ")
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
) -> Vec<Differing> {
    let mut names: Vec<&String> = rxe.keys().chain(ours.keys()).collect();
    // The status decides which other words there are.
    names.sort_by_key(|name| (*name != "status", *name));
    names.dedup();
    let value =
        |of: &BTreeMap<String, String>, name: &String| of.get(name).cloned().unwrap_or_default();
    let differing = names.into_iter().filter(|name| rxe.get(*name) != ours.get(*name));
    let field =
        |name: &String| if kind.is_empty() { name.clone() } else { format!("{kind}.{name}") };
    let of_name = |name: &String| Differing {
        field: field(name),
        rxe: value(rxe, name),
        ours: value(ours, name),
        effect: text(rxe),
    };
    differing.map(of_name).collect()
}
