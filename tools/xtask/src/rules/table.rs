//! The table of rules, their places and their tests.

use std::collections::BTreeMap;

use super::citation::{Citation, Definition, Kind, Place};
use super::source::Source;

/// All rules by name.
#[derive(Debug)]
pub(super) struct Table {
    rules: BTreeMap<String, Row>,
}

#[derive(Debug)]
struct Row {
    definition: Definition,
    /// Where it is implemented, the place of its definition first.
    code: Vec<Place>,
    tests: Vec<Place>,
}

impl Table {
    /// Sorts citations by rule, and adds what is wrong with them to `faults`.
    pub(super) fn new(citations: Vec<Citation>, faults: &mut Vec<String>) -> Self {
        let mut rules: BTreeMap<String, Row> = BTreeMap::new();
        let mut others = Vec::new();
        for Citation { rule, place, kind } in citations {
            let Kind::Rule(definition) = kind else {
                others.push((rule, place, kind));
                continue;
            };
            let Place { file, line, .. } = place.clone();
            if let Some(other) = rules.get(&rule) {
                let other = &other.code[0];
                let at = format!("{}:{}", other.file, other.line);
                faults.push(format!("{file}:{line}: {rule} is at {at} too"));
                continue;
            }
            if definition.text.is_empty() {
                faults.push(format!("{file}:{line}: {rule} says nothing; add a line `//# …`"));
            }
            rules.insert(rule, Row { definition, code: vec![place], tests: Vec::new() });
        }
        for (rule, place, kind) in others {
            let Some(row) = rules.get_mut(&rule) else {
                faults.push(format!("{}:{}: there is no rule {rule}", place.file, place.line));
                continue;
            };
            let places = if matches!(kind, Kind::Test) { &mut row.tests } else { &mut row.code };
            places.push(place);
        }
        for (rule, row) in &rules {
            let Place { file, line, .. } = &row.code[0];
            match (row.tests.is_empty(), &row.definition.untested) {
                (true, None) => faults.push(format!(
                    "{file}:{line}: {rule} has no test; cite it there with `//= test {rule}`, or \
                     say why it has none with `//= untested: …`"
                )),
                (false, Some(_)) => faults
                    .push(format!("{file}:{line}: {rule} has a test and a reason for having none")),
                _ => {}
            }
        }
        Self { rules }
    }

    /// Returns how many rules there are.
    pub(super) fn summary(&self) -> String {
        let count =
            |wanted: fn(&Row) -> bool| self.rules.values().filter(|row| wanted(row)).count();
        let rules = self.rules.len();
        let tested = count(|row| !row.tests.is_empty());
        let not_known = count(|row| row.definition.sources.contains(&Source::NotKnown));
        let plural = if rules == 1 { "" } else { "s" };
        format!("{rules} rule{plural}, {tested} with a test, {not_known} without a known source")
    }

    /// Returns the page that shows the table.
    pub(super) fn page(&self) -> String {
        let mut page = format!("{HEAD}\n{}.\n\n{COLUMNS}", self.summary());
        for (rule, row) in &self.rules {
            let definition = &row.definition;
            let sources: Vec<String> = definition.sources.iter().map(Source::shown).collect();
            let tests = match &definition.untested {
                Some(why) => format!("none: {why}"),
                None => shown(&row.tests),
            };
            page += &format!(
                "| `{rule}` | {} | {} | {} | {tests} |\n",
                definition.text,
                sources.join("; "),
                shown(&row.code)
            );
        }
        page
    }
}

fn shown(places: &[Place]) -> String {
    let mut shown: Vec<String> = Vec::new();
    for Place { file, item, .. } in places {
        let place = format!("{file}: `{item}`");
        if !shown.contains(&place) {
            shown.push(place);
        }
    }
    shown.join("; ")
}

const HEAD: &str = "\
<!-- Made by `cargo xtask rules --write` from citations in the code: see CONTRIBUTING.md. -->

# Rules

What the code takes from the InfiniBand specification, from its annex on RoCEv2, from RFCs and from the
kernel's rxe, in our own words, with the places that implement it and the tests that hold it. A kernel
function is named as `file: function`; the files are in `drivers/infiniband/sw/rxe` unless a folder is
named.
";

const COLUMNS: &str = "\
| rule | meaning | source | code | tests |
|---|---|---|---|---|
";
