//! A row, and how it is played: contestants in turn, round after round.

use super::{Contestant, Network, Pace, Stage, Tools, Wire};
use crate::report::{Axis, ContestantResult, PointResult, RowResult, Run, Target};

/// A row of the table: data.
#[derive(Debug)]
pub struct Row {
    /// Short, for `--only`.
    pub name: &'static str,
    /// For people.
    pub title: String,
    /// What the contestants meet on.
    pub wire: Wire,
    /// A curve: what its points are, and which.
    pub axis: Option<(Axis, Vec<u64>)>,
    /// Who takes part, in the order of their turns.
    pub contestants: Vec<Contestant>,
    /// What is wanted.
    pub targets: Vec<Target>,
    /// What a reader must know.
    pub notes: Vec<String>,
}

/// Plays a row; `say` hears what happens.
///
/// A run that fails is kept as such, and the others go on. Who fails at a point twice in a row
/// without ever having played there is not asked again: it would fail every time. Rows of which
/// nothing is wanted are played a third as often.
pub fn play(row: &Row, tools: &Tools, pace: Pace, say: &mut dyn FnMut(&str)) -> RowResult {
    let mut result = RowResult {
        wire: row.wire.in_words(),
        axis: row.axis.as_ref().map(|(axis, _)| *axis),
        targets: row.targets.clone(),
        notes: row.notes.clone(),
        ..RowResult::named(row.name, &row.title)
    };
    let points: Vec<Option<u64>> = match &row.axis {
        Some((_, points)) => points.iter().copied().map(Some).collect(),
        None => vec![None],
    };
    let network = match tools.lacks(row.wire.needs()) {
        Some(why) => Err(why),
        None => Network::make(row.wire),
    };
    for contestant in &row.contestants {
        let mut entry = ContestantResult::named(contestant.name, &contestant.title);
        let its_points = points.iter().filter(|x| contestant.plays(**x));
        entry.points = its_points.map(|x| PointResult { x: *x, runs: Vec::new() }).collect();
        let network = network.as_ref().err().cloned();
        entry.missing = network.or_else(|| tools.lacks(&contestant.needs));
        if let Some(why) = &entry.missing {
            say(&format!("{}: {}: {why}", row.name, contestant.title));
        }
        result.contestants.push(entry);
    }
    let Ok(network) = network else { return result };
    let is_judged = row.targets.iter().any(|target| target.bound.is_some());
    let rounds = if is_judged { pace.rounds } else { pace.rounds.div_ceil(3) };
    for round in 1..=rounds {
        for x in &points {
            for (contestant, entry) in row.contestants.iter().zip(&mut result.contestants) {
                let Some(point) = entry.points.iter_mut().find(|point| point.x == *x) else {
                    continue;
                };
                if entry.missing.is_some() || is_hopeless(&point.runs) {
                    continue;
                }
                let at = x.unwrap_or(0);
                let stage = Stage::new(tools, &network, pace, at);
                let run = match (contestant.run)(&stage) {
                    Ok(figures) => Run::good(round, figures),
                    Err(why) => Run::failed(round, why),
                };
                say(&in_words(row, &contestant.title, *x, &run));
                point.runs.push(run);
                if entry.commands.is_empty() {
                    entry.commands = stage.into_started();
                }
            }
        }
    }
    result
}

fn is_hopeless(runs: &[Run]) -> bool {
    runs.len() >= 2 && runs.iter().all(|run| run.failure.is_some())
}

fn in_words(row: &Row, who: &str, x: Option<u64>, run: &Run) -> String {
    let place = match (&row.axis, x) {
        (Some((axis, _)), Some(x)) => format!(", {}", axis.at(x)),
        _ => String::new(),
    };
    let what = match &run.failure {
        Some(why) => format!("failed: {why}"),
        None => {
            let each = run
                .figures
                .iter()
                .map(|(figure, value)| format!("{figure} {}", figure.with_unit(*value)));
            each.collect::<Vec<_>>().join(", ")
        }
    };
    format!("{} {}{place}: {who}: {what}", row.name, run.round)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Figure;

    #[test]
    fn who_never_played_is_not_asked_for_ever() {
        let failed = |round| Run::failed(round, "no");
        assert!(!is_hopeless(&[]));
        assert!(!is_hopeless(&[failed(1)]));
        assert!(is_hopeless(&[failed(1), failed(2)]));
        assert!(!is_hopeless(&[Run::good(1, [].into()), failed(2), failed(3)]));
    }

    #[test]
    fn a_level_plays_at_its_point_alone() {
        let contestant = || Contestant::new("raw", "raw", &[], |_| Err(String::new()));
        let level = contestant().only_at(8);
        assert!(level.plays(Some(8)) && level.plays(None) && !level.plays(Some(9)));
        let limited = contestant().up_to(8);
        assert!(limited.plays(Some(8)) && limited.plays(Some(1)) && !limited.plays(Some(9)));
    }

    #[test]
    fn a_run_is_told_with_its_place_and_figures() {
        let row = Row {
            name: "curve",
            title: "by size".to_owned(),
            wire: Wire::Cable { mtu: 1500 },
            axis: Some((Axis::Bytes, vec![4096])),
            contestants: Vec::new(),
            targets: Vec::new(),
            notes: Vec::new(),
        };
        let good = Run::good(2, [(Figure::Gbits, 40.0)].into());
        let text = in_words(&row, "roce", Some(4096), &good);
        assert_eq!(text, "curve 2, 4 KiB: roce: payload 40.0 Gbit/s");
        let text = in_words(&row, "roce", Some(4096), &Run::failed(1, "no"));
        assert_eq!(text, "curve 1, 4 KiB: roce: failed: no");
    }
}
