//! Where the cycles go: workloads played once under `perf`, each end by itself.
//!
//! A [`Workload`] is a network and candidates, as a benchmark of the bench is. [`record`] plays one of
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
use crate::suite::{Candidate, Network, RunConfig, RunContext, Tools};

/// One end of a candidate.
#[derive(Clone, Debug)]
pub struct EndProfile {
    /// `client`, `server`, or which rank.
    pub name: String,
    /// Where its time went.
    pub profile: Profile,
}

/// A candidate that has played.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Short, for names of files.
    pub name: String,
    /// For people.
    pub title: String,
    /// What it reached under the recorder.
    pub figures: Figures,
    /// All its ends.
    pub ends: Vec<EndProfile>,
}

/// Plays a candidate as often as the config says, each of its programs under `perf`, and keeps the
/// run that reached most: the machine, and TCP with it, has slow moments that explain nothing.
/// Recordings lie in `folder`.
///
/// # Errors
/// It did not play, or its recordings could not be read; the text says why.
pub fn record(
    candidate: &Candidate,
    network: &Network,
    tools: &Tools,
    config: RunConfig,
    folder: &Path,
) -> Result<Recorded, String> {
    if let Some(why) = tools.lacks(&candidate.needs) {
        return Err(why);
    }
    let mut best: Option<(Figures, Recorder)> = None;
    for round in 0..config.rounds.max(1) {
        let recorder = Recorder::new(folder, &format!("{}-{round}", candidate.name));
        let figures = (candidate.run)(&RunContext::recorded(tools, network, config, &recorder))?;
        if best.as_ref().is_none_or(|(before, _)| merit(&figures) > merit(before)) {
            best = Some((figures, recorder));
        }
    }
    let (figures, recorder) = best.ok_or("it did not play")?;
    let mut ends = Vec::new();
    for (name, recording) in recorder.recordings() {
        ends.push(EndProfile { name, profile: Profile::read(&recording)? });
    }
    // The end that acts comes first, as in the tables of the bench.
    ends.sort_by(|a, b| a.name.cmp(&b.name));
    let (name, title) = (candidate.name.to_string(), candidate.title.clone());
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
