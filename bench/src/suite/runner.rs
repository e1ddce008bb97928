//! A benchmark, and its run: candidates in turn, round after round.

use std::time::{Duration, Instant};

use super::candidate::{CLIENT_CPU, SERVER_CPU};
use super::{Candidate, Network, RunConfig, RunContext, Tools, Topology};
use crate::cache_distance;
use crate::report::{
    Axis, BenchmarkResult, CacheDistance, CandidateResult, Comparison, PointResult, Run,
    TYPICAL_FAR,
};

/// A benchmark of the table: data.
#[derive(Debug)]
pub struct Benchmark {
    /// Short, for `--only`.
    pub name: &'static str,
    /// For people.
    pub title: String,
    /// The network.
    pub topology: Topology,
    /// A curve: what its points are, and which.
    pub axis: Option<(Axis, Vec<u64>)>,
    /// The candidates, in the order of their turns.
    pub candidates: Vec<Candidate>,
    /// The lines of the table.
    pub comparisons: Vec<Comparison>,
    /// Notes below the table.
    pub notes: Vec<String>,
}

impl Benchmark {
    /// Returns how many of so many rounds it runs: all, or a third if it has no target.
    pub fn rounds(&self, all: u32) -> u32 {
        let has_target = self.comparisons.iter().any(|comparison| comparison.target.is_some());
        if has_target { all } else { all.div_ceil(3) }
    }
}

/// Runs a benchmark; `say` gets a line for each run.
///
/// A run that fails is recorded, and the others go on. A candidate whose first two runs at a point fail
/// does not run there again.
///
/// The distance of the two processors is probed before and after each run. Where the state of the machine left
/// runs of a comparison with a target without a pair, up to two rounds more follow while there is `spare` time,
/// which they use up.
pub fn run_benchmark(
    benchmark: &Benchmark,
    tools: &Tools,
    config: RunConfig,
    spare: &mut Duration,
    say: &mut dyn FnMut(&str),
) -> BenchmarkResult {
    let mut result = BenchmarkResult {
        topology: benchmark.topology.in_words(),
        axis: benchmark.axis.as_ref().map(|(axis, _)| *axis),
        comparisons: benchmark.comparisons.clone(),
        notes: benchmark.notes.clone(),
        ..BenchmarkResult::named(benchmark.name, &benchmark.title)
    };
    let points: Vec<Option<u64>> = match &benchmark.axis {
        Some((_, points)) => points.iter().copied().map(Some).collect(),
        None => vec![None],
    };
    let network = match tools.lacks(benchmark.topology.needs()) {
        Some(why) => Err(why),
        None => Network::make(benchmark.topology),
    };
    for candidate in &benchmark.candidates {
        let mut entry = CandidateResult::named(&candidate.name, &candidate.title);
        let its_points = points.iter().filter(|x| candidate.runs_at(**x));
        entry.points = its_points.map(|x| PointResult { x: *x, runs: Vec::new() }).collect();
        let network = network.as_ref().err().cloned();
        entry.missing = network.or_else(|| tools.lacks(&candidate.needs));
        if let Some(why) = &entry.missing {
            say(&format!("{}: {}: {why}", benchmark.name, candidate.title));
        }
        result.candidates.push(entry);
    }
    let Ok(network) = network else { return result };
    // A machine with one processor has no distance.
    let can_probe = cache_distance::can_probe(CPUS);
    let probe = || if can_probe { cache_distance::probe(CPUS) } else { None };
    let mut round = 0;
    while round < config.rounds
        || round < most_rounds(config.rounds)
            && !spare.is_zero()
            && needs_another_round(&mut result, config.rounds)
    {
        round += 1;
        let began = Instant::now();
        for x in &points {
            for (candidate, entry) in benchmark.candidates.iter().zip(&mut result.candidates) {
                let Some(point) = entry.points.iter_mut().find(|point| point.x == *x) else {
                    continue;
                };
                if entry.missing.is_some() || is_hopeless(&point.runs) {
                    continue;
                }
                let at = x.unwrap_or(0);
                let context = RunContext::new(tools, &network, config, at);
                let before = probe();
                let run = match (candidate.run)(&context) {
                    Ok(figures) => Run::good(round, figures),
                    Err(why) => Run::failed(round, why),
                };
                let cache = CacheDistance::new(before, probe(), TYPICAL_FAR);
                let run = Run { cache: can_probe.then_some(cache), ..run };
                say(&in_words(benchmark, &candidate.title, *x, &run));
                point.runs.push(run);
                if entry.commands.is_empty() {
                    entry.commands = context.into_started();
                }
            }
        }
        if round > config.rounds {
            *spare = spare.saturating_sub(began.elapsed());
        }
    }
    result
}

/// Returns how many rounds a benchmark has at most, if some runs had no pair in the same state.
fn most_rounds(rounds: u32) -> u32 {
    rounds + rounds.div_ceil(2).min(MAX_MORE_ROUNDS)
}

/// Returns true if a comparison with a target has fewer pairs of runs than rounds were asked for, and more
/// rounds can change that.
fn needs_another_round(result: &mut BenchmarkResult, rounds: u32) -> bool {
    // The rounds of a quick run decide nothing in any case.
    if rounds < MIN_ROUNDS {
        return false;
    }
    result.set_cache_states();
    result.comparisons.iter().filter(|comparison| comparison.target.is_some()).any(|comparison| {
        let evaluated = comparison.evaluate(result);
        let both_ran = evaluated.ours.is_some() && evaluated.theirs.is_some();
        both_ran && evaluated.ratio.is_none_or(|ratio| ratio.count < rounds as usize)
    })
}

fn is_hopeless(runs: &[Run]) -> bool {
    runs.len() >= 2 && runs.iter().all(|run| run.failure.is_some())
}

fn in_words(benchmark: &Benchmark, candidate: &str, x: Option<u64>, run: &Run) -> String {
    let place = match (&benchmark.axis, x) {
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
    let distance = run.cache.map_or_else(String::new, |cache| {
        let [before, after] = [cache.before, cache.after]
            .map(|it| it.map_or("?".to_owned(), |it| format!("{it:.0}")));
        format!("; cache line {before}, {after} ns")
    });
    format!("{} {}{place}: {candidate}: {what}{distance}", benchmark.name, run.round)
}

/// The processors that the two ends are bound to.
const CPUS: [usize; 2] = [CLIENT_CPU, SERVER_CPU];
/// The fewest rounds that can decide about a target.
const MIN_ROUNDS: u32 = 5;
const MAX_MORE_ROUNDS: u32 = 2;
/// What further rounds of all benchmarks may take, so that a run does not get much longer than it says.
pub const SPARE_TIME: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Figure, example};

    #[test]
    fn a_candidate_that_fails_twice_at_first_runs_no_more() {
        let failed = |round| Run::failed(round, "no");
        assert!(!is_hopeless(&[]));
        assert!(!is_hopeless(&[failed(1)]));
        assert!(is_hopeless(&[failed(1), failed(2)]));
        assert!(!is_hopeless(&[Run::good(1, [].into()), failed(2), failed(3)]));
    }

    #[test]
    fn more_rounds_follow_where_runs_have_no_pair_in_their_state() {
        let mut result = example::benchmark();
        assert!(!needs_another_round(&mut result, 5), "five pairs; what never ran asks for none");
        let run = &mut result.candidates[0].points[0].runs[2];
        run.cache = Some(CacheDistance::new(Some(50.0), Some(320.0), TYPICAL_FAR));
        assert!(needs_another_round(&mut result, 5));
        assert!(!needs_another_round(&mut result, 4), "a quick run");
        assert_eq!([1, 5, 9].map(most_rounds), [2, 7, 11]);
    }

    #[test]
    fn a_candidate_runs_at_its_points_alone() {
        let candidate = || Candidate::new("raw", "raw", &[], |_| Err(String::new()));
        let level = candidate().only_at(8);
        assert!(level.runs_at(Some(8)) && level.runs_at(None) && !level.runs_at(Some(9)));
        let limited = candidate().up_to(8);
        assert!(limited.runs_at(Some(8)) && limited.runs_at(Some(1)) && !limited.runs_at(Some(9)));
    }

    #[test]
    fn a_run_is_described_with_its_point_and_figures() {
        let benchmark = Benchmark {
            name: "curve",
            title: "by size".to_owned(),
            topology: Topology::Cable { mtu: 1500 },
            axis: Some((Axis::Bytes, vec![4096])),
            candidates: Vec::new(),
            comparisons: Vec::new(),
            notes: Vec::new(),
        };
        let good = Run::good(2, [(Figure::Gbits, 40.0)].into());
        let text = in_words(&benchmark, "roce", Some(4096), &good);
        assert_eq!(text, "curve 2, 4 KiB: roce: payload 40.0 Gbit/s");
        let cache = Some(CacheDistance::new(Some(51.2), None, 100.0));
        let text = in_words(&benchmark, "roce", Some(4096), &Run { cache, ..good });
        assert!(text.ends_with("payload 40.0 Gbit/s; cache line 51, ? ns"), "{text}");
        let text = in_words(&benchmark, "roce", Some(4096), &Run::failed(1, "no"));
        assert_eq!(text, "curve 1, 4 KiB: roce: failed: no");
    }
}
