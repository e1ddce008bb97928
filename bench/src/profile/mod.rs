//! Where the cycles go: workloads played once under `perf`, each end by itself.
//!
//! A [`Workload`] is a network and contestants, as a row of the bench is. [`record`] plays one of
//! them with a [`Recorder`] around every program, and gives for each end a [`Profile`]: stacks of
//! functions, those that the compiler inlined among them. Of these [`page`] makes tables of shares
//! by group of functions and by function, and [`flame::svg`] a graph.

pub mod flame;
mod groups;
mod page;
mod recorder;
mod stacks;
mod symbols;
mod workloads;

pub use groups::{Group, group};
pub use page::page;
pub use recorder::Recorder;
pub use stacks::{Frame, Place, Profile, Stack};
pub use workloads::{Workload, workloads};

use std::path::Path;

use crate::report::{Figure, Figures};
use crate::suite::{Contestant, Network, Pace, Stage, Tools};

/// One end of a contestant.
#[derive(Clone, Debug)]
pub struct End {
    /// `client`, `server`, or which rank.
    pub name: String,
    /// Where its time went.
    pub profile: Profile,
}

/// A contestant that has played.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Short, for names of files.
    pub name: String,
    /// For people.
    pub title: String,
    /// What it reached under the recorder.
    pub figures: Figures,
    /// All its ends.
    pub ends: Vec<End>,
}

/// Plays a contestant as often as the pace says, each of its programs under `perf`, and keeps the
/// run that reached most: the machine, and TCP with it, has slow moments that explain nothing.
/// Recordings lie in `folder`.
///
/// # Errors
/// It did not play, or its recordings could not be read; the text says why.
pub fn record(
    contestant: &Contestant,
    network: &Network,
    tools: &Tools,
    pace: Pace,
    folder: &Path,
) -> Result<Recorded, String> {
    if let Some(why) = tools.lacks(&contestant.needs) {
        return Err(why);
    }
    let mut best: Option<(Figures, Recorder)> = None;
    for round in 0..pace.rounds.max(1) {
        let recorder = Recorder::new(folder, &format!("{}-{round}", contestant.name));
        let figures = (contestant.run)(&Stage::recorded(tools, network, pace, &recorder))?;
        if best.as_ref().is_none_or(|(before, _)| merit(&figures) > merit(before)) {
            best = Some((figures, recorder));
        }
    }
    let (figures, recorder) = best.ok_or("it did not play")?;
    let mut ends = Vec::new();
    for (name, recording) in recorder.recordings() {
        ends.push(End { name, profile: Profile::read(&recording)? });
    }
    // The end that acts comes first, as in the tables of the bench.
    ends.sort_by(|a, b| a.name.cmp(&b.name));
    let (name, title) = (contestant.name.to_owned(), contestant.title.clone());
    Ok(Recorded { name, title, figures, ends })
}

/// More is better.
fn merit(figures: &Figures) -> f64 {
    let of = |figure| figures.get(&figure).copied();
    // Those that have a latency are judged by it.
    let latency = of(Figure::MicrosMedian).map(|micros| -micros);
    let others = [Figure::BusGbytes, Figure::Gbits, Figure::PerSecond];
    latency.or_else(|| others.into_iter().find_map(of)).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_run_that_reached_most_is_the_best() {
        let gbits = |value| merit(&[(Figure::Gbits, value), (Figure::PerSecond, 1.0)].into());
        assert!(gbits(50.0) > gbits(40.0));
        let micros = |value| merit(&[(Figure::MicrosMedian, value)].into());
        assert!(micros(1.0) > micros(2.0));
    }
}
