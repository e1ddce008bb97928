//! The cases of mixed rings.

use crate::Fault;
use crate::case::{Case, Run};
use crate::cases::{ring, ring_faults};
use crate::ring::Kind::{self, Ours, Rxe};
use crate::ring::{Job, RingWorld};

/// Everything there is to show with rings.
pub fn cases() -> Vec<Case<RingWorld>> {
    let mut cases = Vec::new();
    rings(&mut cases);
    types(&mut cases);
    lanes(&mut cases);
    faults(&mut cases);
    // A change of the links' MTU takes a while.
    cases.sort_by_key(|case| (case.path_mtu, case.netem));
    cases
}

/// Every ring of three and of four ranks with at least one of either kind and rank 0 ours.
fn mixed() -> impl Iterator<Item = Vec<Kind>> {
    [3, 4].into_iter().flat_map(|size: usize| {
        (1..1 << (size - 1)).map(move |in_guests: u32| {
            let kind = |rank| if in_guests >> (rank - 1) & 1 == 1 { Rxe } else { Ours };
            std::iter::once(Ours).chain((1..size as u32).map(kind)).collect()
        })
    })
}

fn row(kinds: &[Kind]) -> String {
    let names: Vec<_> = kinds.iter().map(|kind| kind.name()).collect();
    names.join(" → ")
}

/// Every ring with large and small packets, and while guests lose some of what they send.
fn rings(cases: &mut Vec<Case<RingWorld>>) {
    for (column, path_mtu, netem) in
        [("MTU 1024", 1024, ""), ("MTU 4096", 4096, ""), ("loss 1%", 1024, "loss 1%")]
    {
        for kinds in mixed() {
            let (row, job) = (row(&kinds), Job::new());
            let run: Run<_> = Box::new(move |world| ring::run(world, &kinds, job));
            cases.push(Case { group: "ring", row, column: column.into(), path_mtu, netem, run });
        }
    }
    // Each link takes what both its ends can.
    let kinds = [Ours, Ours, Rxe];
    let run: Run<_> = Box::new(move |world| ring::unequal(world, &kinds, Job::new()));
    let (row, column) = (row(&kinds), "MTU 4096 and 1024".to_owned());
    cases.push(Case { group: "ring", row, column, path_mtu: 1024, netem: "", run });
}

/// Every type with every operator, each in another of the smaller rings.
fn types(cases: &mut Vec<Case<RingWorld>>) {
    let rings: Vec<_> = mixed().filter(|kinds| kinds.len() == 3).collect();
    let mut ring = rings.iter().cycle();
    for data_type in TYPES {
        for operator in OPERATORS {
            let kinds = ring.next().cloned().unwrap_or_default();
            // One size of either way, and counts that size does not divide.
            let job = Job { data_type, operator, min: 1000, max: 40_000, factor: 40, ..Job::new() };
            let job = Job { iterations: 1, ..job };
            cases.push(Case::new("ring types", data_type, operator, 4096, move |world| {
                ring::run(world, &kinds, job)
            }));
        }
    }
}

/// Several queue pairs between neighbours.
fn lanes(cases: &mut Vec<Case<RingWorld>>) {
    let kinds = [Ours, Rxe, Rxe];
    for (column, split) in [("4 lanes", false), ("4 lanes, split", true)] {
        let job = Job { lanes: 4, split, ..Job::new() };
        let row = row(&kinds);
        cases
            .push(Case::new("ring", row, column, 4096, move |world| ring::run(world, &kinds, job)));
    }
}

/// What goes wrong at one rank is known by name at every other.
fn faults(cases: &mut Vec<Case<RingWorld>>) {
    type Step = fn(&RingWorld, &[Kind], usize) -> Result<(), Fault>;
    let steps: [(&str, usize, Step); 5] = [
        ("rank 0 killed", 0, ring_faults::killed),
        ("rank 1 killed", 1, ring_faults::killed),
        ("rank 2 killed", 2, ring_faults::killed),
        ("rank 1 mute", 1, ring_faults::mute),
        ("rank 1 of another type", 1, ring_faults::another_type),
    ];
    for kinds in [[Ours, Rxe, Ours], [Ours, Ours, Rxe], [Ours, Rxe, Rxe]] {
        for (column, culprit, step) in steps {
            // It is the first guest that falls silent.
            if column == "rank 1 mute" && kinds[1] != Rxe {
                continue;
            }
            let row = row(&kinds);
            cases.push(Case::new("ring faults", row, column, 4096, move |world| {
                step(world, &kinds, culprit)
            }));
        }
    }
}

const TYPES: [&str; 10] =
    ["int8", "uint8", "int32", "uint32", "int64", "uint64", "half", "float", "double", "bfloat16"];
const OPERATORS: [&str; 5] = ["sum", "prod", "max", "min", "avg"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_two_and_all_but_one_of_the_ranks_are_on_rxe_and_rank_0_never() {
        let rings: Vec<_> = mixed().collect();
        assert_eq!(rings.len(), 3 + 7);
        for size in [3, 4] {
            for on_rxe in [1, 2, size - 1] {
                let count = |kinds: &&Vec<Kind>| {
                    kinds.len() == size
                        && kinds.iter().filter(|kind| **kind == Rxe).count() == on_rxe
                };
                assert!(rings.iter().any(|kinds| count(&kinds)), "{on_rxe} of {size}");
            }
        }
        assert!(rings.iter().all(|kinds| kinds[0] == Ours));
    }
}
