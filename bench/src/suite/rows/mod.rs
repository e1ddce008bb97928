//! The rows of the table, as data.

mod bandwidth;
mod busy;
mod collectives;
mod idle;
mod latency;
mod loss;
mod sharing;

use super::{Pace, Row};

/// All rows, in the order of the table; a quick run has fewer points on its axes.
pub fn rows(pace: &Pace) -> Vec<Row> {
    let mut all = bandwidth::rows(pace);
    all.extend(latency::rows(pace));
    all.extend(collectives::rows(pace));
    all.extend(busy::rows(pace));
    all.extend(sharing::rows(pace));
    all.extend(loss::rows(pace));
    all.extend(idle::rows(pace));
    all
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn both() -> [Vec<Row>; 2] {
        let pace = Pace { rounds: 1, seconds: 1.0, quick: false, realtime: false };
        [rows(&pace), rows(&Pace { quick: true, ..pace })]
    }

    #[test]
    fn rows_have_names_of_their_own() {
        for all in both() {
            let names: BTreeSet<&str> = all.iter().map(|row| row.name).collect();
            assert_eq!(names.len(), all.len());
        }
    }

    #[test]
    fn what_is_wanted_is_wanted_of_those_who_take_part() {
        for row in both().iter().flatten() {
            let plays = |name: &str, at: Option<u64>| {
                let found = row.contestants.iter().find(|contestant| contestant.name == name);
                let points = row.axis.as_ref().map(|(_, points)| points);
                let there = match (points, at) {
                    (None, None) => true,
                    (Some(points), Some(x)) => points.contains(&x),
                    _ => false,
                };
                there && found.is_some_and(|it| it.plays(at))
            };
            for target in &row.targets {
                assert!(plays(&target.ours, target.at), "{}: {target:?}", row.name);
                let beside = target.beside.as_ref();
                assert!(
                    beside.is_none_or(|name| plays(name, target.at)),
                    "{}: {target:?}",
                    row.name
                );
            }
        }
    }

    #[test]
    fn a_quick_run_has_the_targets_that_a_full_one_has() {
        let [full, quick] = both();
        let wanted = |rows: &[Row]| -> BTreeSet<String> {
            let targets = rows.iter().flat_map(|row| {
                let bound = row.targets.iter().filter(|target| target.bound.is_some());
                bound.map(|target| format!("{}: {target:?}", row.name))
            });
            targets.collect()
        };
        assert_eq!(wanted(&full), wanted(&quick));
    }
}
