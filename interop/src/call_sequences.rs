//! Sequences of calls from a seed, on the kernel's rxe in a guest and on our libraries, and their differences.
//!
//! `interop/call_sequences` is the program that executes them; it is the same on both sides. What it prints
//! is [`Sequence`]s, which [`difference`](comparison::difference) compares. A difference is allowed if a row of
//! `interop/call_sequences/allowed.toml` has its reason.

pub mod allowed;
pub mod comparison;
pub mod coverage;
pub mod ends;
mod output;
mod places;

pub use allowed::Allowed;
pub use output::{Ending, Sequence, Step};
pub use places::{Batch, on_ours, on_rxe, our_files, prepare, rxe_files};

use std::collections::{BTreeMap, BTreeSet};

use self::allowed::Place;
use crate::{Fault, World};

/// A difference that no row allows, and where it was seen.
#[derive(Clone, Debug)]
pub struct Found {
    /// The seed of the sequence.
    pub seed: u64,
    /// What differs.
    pub difference: comparison::Difference,
}

/// What comparing a batch of sequences has shown.
#[derive(Debug, Default)]
pub struct Summary {
    /// Sequences that were compared.
    pub compared: u64,
    /// Calls whose results were compared.
    pub calls: u64,
    /// Sequences whose comparison ended early at an allowed difference of state.
    pub cut: u64,
    /// Differences that no row allows, at most one for each sequence.
    pub found: Vec<Found>,
    /// Differences that were not there each time when their sequences were executed again.
    pub unsteady: Vec<Found>,
    /// Sequences that ended or stopped rxe's kernel or process, and how.
    pub crashes: Vec<(u64, String)>,
    /// How often each row was used.
    pub used: Vec<u64>,
}

impl Summary {
    /// Compares the sequences of a batch that both sides have printed.
    pub fn add(&mut self, allowed: &Allowed, rxe: &[Sequence], ours: &[Sequence]) {
        self.used.resize(allowed.rows.len(), 0);
        for theirs in rxe {
            let Some(our) = ours.iter().find(|it| it.seed == theirs.seed) else {
                let difference = comparison::Difference::of_end(theirs, "nothing".into());
                self.found.push(Found { seed: theirs.seed, difference });
                continue;
            };
            if matches!(theirs.ending, Ending::Hung | Ending::Stuck)
                && !matches!(our.ending, Ending::Hung)
            {
                self.crashes.push((theirs.seed, theirs.last_line()));
                continue;
            }
            self.compared += 1;
            let outcome = comparison::difference(allowed, theirs, our, &mut self.used);
            self.note(theirs.seed, outcome);
        }
    }

    /// Compares the sequences of two ends with those that the reference has printed.
    ///
    /// The comparison of both ends stops where that of one does: they had different peers from there on.
    pub fn add_ends(
        &mut self,
        allowed: &Allowed,
        reference: &[Vec<Sequence>; 2],
        seen: &[Vec<Sequence>; 2],
    ) {
        self.used.resize(allowed.rows.len(), 0);
        let of = |ends: &[Vec<Sequence>; 2], seed| {
            ends.each_ref().map(|end| end.iter().find(|it| it.seed == seed).cloned())
        };
        for seed in reference[0].iter().map(|it| it.seed) {
            let [Some(a), Some(b)] = of(reference, seed) else { continue };
            if let Some(other) = [&a, &b].into_iter().find(|it| it.ending != Ending::Ended) {
                self.crashes.push((seed, other.end()));
                continue;
            }
            let (ours, theirs) = (of(seen, seed), [a, b]);
            self.compared += 1;
            let compare = |end: usize, used: &mut [u64]| match &ours[end] {
                Some(our) => comparison::difference(allowed, &theirs[end], our, used),
                None => comparison::Outcome::of_missing(&theirs[end]),
            };
            let outcomes = [0, 1].map(|end| compare(end, &mut self.used));
            let first = outcomes.into_iter().min_by_key(|it| (it.steps, it.difference.is_none()));
            self.note(seed, first.unwrap_or_default());
        }
    }

    /// Adds what another comparison with the same table has shown.
    fn merge(&mut self, mut other: Self) {
        self.compared += other.compared;
        self.calls += other.calls;
        self.cut += other.cut;
        self.found.append(&mut other.found);
        self.unsteady.append(&mut other.unsteady);
        self.crashes.append(&mut other.crashes);
        self.used.resize(other.used.len(), 0);
        self.used.iter_mut().zip(other.used).for_each(|(sum, used)| *sum += used);
    }

    fn note(&mut self, seed: u64, outcome: comparison::Outcome) {
        self.calls += outcome.calls;
        self.cut += u64::from(outcome.is_cut);
        if let Some(difference) = outcome.difference {
            self.found.push(Found { seed, difference });
        }
    }
}

/// Compares the files that programs read below `/sys`, and returns the differences that no row allows.
///
/// # Errors
/// When one side cannot be asked.
pub fn compare_files(
    allowed: &Allowed,
    world: &World,
    program: &std::path::Path,
) -> Result<Vec<String>, Fault> {
    let files = |text: &str| -> BTreeMap<String, String> {
        let lines = text.lines().filter_map(|line| line.strip_prefix("file "));
        let pairs = lines.map(|line| line.split_once(' ').unwrap_or((line, "")));
        pairs.map(|(name, content)| (name.to_owned(), content.to_owned())).collect()
    };
    let (rxe, ours) = (files(&rxe_files(world, program)?), files(&our_files(program)?));
    let names: BTreeSet<&String> = rxe.keys().chain(ours.keys()).collect();
    let mut found = Vec::new();
    for name in names {
        let value = |of: &BTreeMap<String, String>| of.get(name).cloned().unwrap_or_default();
        let (theirs, our) = (value(&rxe), value(&ours));
        let place = Place {
            call: "file",
            line: "",
            effect: "",
            field: name,
            rxe: &theirs,
            ours: &our,
            beside: &[],
        };
        if theirs != our && allowed.row(place).is_none() {
            found.push(format!("file {name}: {theirs:?} with rxe, {our:?} with ours"));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two ends, each with two calls of which the second one has this result.
    fn ends(results: [u32; 2]) -> [Vec<Sequence>; 2] {
        results.map(|result| {
            Sequence::read_all(&format!("= 1\n01 a -> ret=0\n02 b -> ret={result}\n= 1 ended 0"))
        })
    }

    #[test]
    fn the_comparison_of_both_ends_stops_where_that_of_one_does() {
        let row = "[[allowed]]\ncall = \"a\"\nfield = \"ret\"\nends = true\nreason = \"\"";
        let (allowed, mut cut) = (toml::from_str(row).unwrap(), ends([0, 7]));
        cut[0][0].steps[0].results.insert("ret".into(), "5".into());
        let mut summary = Summary::default();
        summary.add_ends(&allowed, &ends([0, 0]), &cut);
        assert_eq!((summary.compared, summary.cut, summary.found.len()), (1, 1, 0));
        summary.add_ends(&allowed, &ends([0, 0]), &ends([0, 7]));
        assert_eq!((summary.compared, summary.cut, summary.found.len()), (2, 1, 1));
    }

    #[test]
    fn a_sequence_that_ours_never_printed_is_a_difference() {
        let rxe = Sequence::read_all(
            "= 1\n01 a x -> ret=0\n= 1 ended 0\n= 2\n01 b y -> ret=0\n= 2 ended 0",
        );
        let mut summary = Summary::default();
        summary.add(&Allowed::default(), &rxe, &rxe[..1]);
        assert_eq!(summary.compared, 1);
        let [found] = &summary.found[..] else { panic!("{:?}", summary.found) };
        let difference = &found.difference;
        assert_eq!((found.seed, &*difference.call, &*difference.field), (2, "b", "end"));
        assert_eq!(difference.ours, "nothing");
    }
}
