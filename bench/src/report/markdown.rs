//! The table: one line for each comparison, with its target and whether it was reached.

use std::fmt::Write;

use super::figure::three_digits;
use super::{
    BenchmarkResult, CacheState, Comparison, Evaluation, Figure, Interval, Report, Summary, Verdict,
};

/// The table as Markdown, with what must be known to read it.
pub fn table(report: &Report) -> String {
    let mut text = format!("{}\n\n{}\n{}\n\n", heading(report), lines(report), score(report));
    text += &states(report).map_or_else(String::new, |states| states + "\n\n");
    for note in notes(report) {
        // A String takes everything.
        let _ = writeln!(text, "- {note}");
    }
    text
}

fn lines(report: &Report) -> String {
    let mut text = HEAD.to_owned();
    for benchmark in &report.benchmarks {
        let mut last = String::new();
        for comparison in &benchmark.comparisons {
            let what = what(benchmark, comparison);
            // Said once, not in every line.
            text += &line(benchmark, comparison, if what == last { "" } else { &what });
            last = what;
        }
    }
    text
}

const HEAD: &str = "\
| what | ours | beside | | ours / beside | target | result |
|---|---|---|---|---|---|---|
";

fn heading(report: &Report) -> String {
    let about = &report.about;
    let rounds = if about.rounds == 1 {
        "one round".to_owned()
    } else {
        format!(
            "medians of {} rounds in turn, with least and most, and of the ratio with its interval",
            about.rounds
        )
    };
    format!(
        "Measured {}, commit {}, on {} cores of {}, {}; {rounds}{}.\nTo repeat it: `{}`.",
        about.date,
        about.commit.short(),
        about.machine.cores,
        about.machine.processor,
        about.machine.kernel,
        if about.quick { ", short runs (`--quick`)" } else { "" },
        about.command,
    )
}

/// What a line is about: the benchmark, and of it what differs from line to line.
fn what(benchmark: &BenchmarkResult, comparison: &Comparison) -> String {
    let mut what = benchmark.title.clone();
    if let (Some(axis), Some(x)) = (&benchmark.axis, comparison.at) {
        let _ = write!(what, ", {}", axis.at(x));
    }
    if comparison.ours != "roce" {
        let _ = write!(what, ": {}", title(benchmark, &comparison.ours));
    }
    if matches!(
        comparison.figure,
        Figure::Micros99 | Figure::Micros999 | Figure::MinShare | Figure::MaxShare
    ) {
        let _ = write!(what, ", {}", comparison.figure);
    }
    what
}

fn title<'a>(benchmark: &'a BenchmarkResult, name: &'a str) -> &'a str {
    benchmark.candidate(name).map_or(name, |candidate| &candidate.title)
}

fn line(benchmark: &BenchmarkResult, comparison: &Comparison, what: &str) -> String {
    let Evaluation { ours, theirs, ratio, verdict, .. } = comparison.evaluate(benchmark);
    let figure = comparison.figure;
    let lost = |name: &str| lost(benchmark, name, comparison.at);
    let [ours_count, theirs_count] = [&ours, &theirs].map(|it| it.map_or(0, |it| it.count));
    let ours = ours.map(|it| amount(figure, it) + &lost(&comparison.ours)).unwrap_or_default();
    let beside =
        comparison.beside.as_deref().map(|name| title(benchmark, name)).unwrap_or_default();
    let of_theirs = comparison.beside.as_deref().map(lost).unwrap_or_default();
    let theirs = theirs.map(|it| amount(figure, it) + &of_theirs).unwrap_or_default();
    let verdict = match verdict {
        Verdict::Pass => "pass".to_owned(),
        Verdict::Fail => "**fail**".to_owned(),
        Verdict::Open => "open".to_owned(),
        Verdict::NoTarget => String::new(),
        Verdict::NotMeasured(why) => format!("not measured: {why}"),
    };
    let rounds = ours_count.min(theirs_count);
    let ratio = ratio.map(|ratio| {
        let pairs = ratio.count;
        interval(&ratio) + &if pairs < rounds { format!(", {pairs} pairs") } else { String::new() }
    });
    let ratio = ratio.unwrap_or_default();
    let wanted = comparison.in_words();
    format!("| {what} | {ours} | {beside} | {theirs} | {ratio} | {wanted} | {verdict} |\n")
}

/// The median of a ratio, and where there is more than one the interval.
pub(super) fn interval(ratio: &Interval) -> String {
    let [median, low, high] = [ratio.median, ratio.low, ratio.high].map(three_digits);
    if ratio.count == 1 {
        format!("**{median}**")
    } else {
        format!("**{median}** ({low} – {high})")
    }
}

/// Says how many messages of a candidate were lost, if it counts them.
fn lost(benchmark: &BenchmarkResult, name: &str, at: Option<u64>) -> String {
    let lost = benchmark.summary(name, at, Figure::LostPercent);
    lost.map_or_else(String::new, |lost| {
        format!(", {} lost", Figure::LostPercent.with_unit(lost.median))
    })
}

fn amount(figure: Figure, summary: Summary) -> String {
    let median = figure.with_unit(summary.median);
    if summary.count == 1 || summary.low == summary.high {
        return median;
    }
    format!("{median} ({} – {})", figure.bare(summary.low), figure.bare(summary.high))
}

/// Says how many runs were near and how many far, and how far that is; `None` if none was probed.
fn states(report: &Report) -> Option<String> {
    let threshold = report.about.cache_threshold?;
    let candidates = report.benchmarks.iter().flat_map(|benchmark| &benchmark.candidates);
    let runs = candidates.flat_map(|candidate| &candidate.points).flat_map(|point| &point.runs);
    let probed: Vec<_> = runs.filter_map(|run| run.cache).collect();
    let in_state = |state| {
        let its = probed.iter().filter(|cache| cache.state == state).collect::<Vec<_>>();
        let before = Summary::of(its.iter().filter_map(|cache| cache.before));
        let typical = before.map(|it| format!(" (typically {:.0} ns)", it.median));
        (its.len(), typical.unwrap_or_default())
    };
    let (near, typically_near) = in_state(CacheState::Near);
    let (far, typically_far) = in_state(CacheState::Far);
    let (changed, _) = in_state(CacheState::Changed);
    let (unknown, _) = in_state(CacheState::Unknown);
    let mut text = if near + changed == 0 || far + changed == 0 {
        // One of the two is empty, and says nothing.
        format!(
            "The machine was in one state: {} runs, a cache line from one processor to the other and \
             back{typically_near}{typically_far}.",
            near + far
        )
    } else {
        format!(
            "A cache line went from one processor to the other and back in less than {threshold:.0} ns \
             around {near} runs{typically_near}, and in more around {far}{typically_far}; around \
             {changed} the state changed, and these runs are in no ratio."
        )
    };
    if unknown > 0 {
        let _ =
            write!(text, " Around {unknown} it could not be measured; these runs are in no ratio.");
    }
    Some(text)
}

/// Counts the targets that passed and failed.
pub(super) fn score(report: &Report) -> String {
    let verdicts = report.benchmarks.iter().flat_map(|benchmark| {
        let wanted = benchmark.comparisons.iter().filter(|comparison| comparison.target.is_some());
        wanted.map(|comparison| comparison.evaluate(benchmark).verdict)
    });
    let (mut passed, mut failed, mut open, mut not_measured) = (0, 0, 0, 0);
    for verdict in verdicts {
        match verdict {
            Verdict::Pass => passed += 1,
            Verdict::Fail => failed += 1,
            Verdict::Open => open += 1,
            Verdict::NoTarget => {}
            Verdict::NotMeasured(_) => not_measured += 1,
        }
    }
    let mut text = format!("{passed} targets passed, {failed} failed, {open} open");
    if not_measured > 0 {
        let _ = write!(text, ", {not_measured} not measured");
    }
    text + "."
}

fn notes(report: &Report) -> Vec<String> {
    let mut notes = Vec::new();
    for benchmark in &report.benchmarks {
        for candidate in &benchmark.candidates {
            let (runs, failed) = candidate.count();
            if let Some(why) = candidate.first_failure() {
                let why = why.split_whitespace().collect::<Vec<_>>().join(" ");
                notes.push(format!(
                    "`{}`: {} failed in {failed} of {runs} runs; the first said: {why}",
                    benchmark.name, candidate.title
                ));
            }
        }
        notes.extend(benchmark.comparisons.iter().filter_map(|it| by_state(benchmark, it)));
        notes.extend(benchmark.notes.iter().map(|note| format!("`{}`: {note}", benchmark.name)));
    }
    let missing = report.external_programs.iter().filter(|peer| peer.version.is_none());
    notes.extend(missing.map(|peer| {
        format!(
            "{} is not installed (package {}): its lines are missing",
            peer.program, peer.package
        )
    }));
    let ages: std::collections::BTreeSet<&str> =
        report.benchmarks.iter().map(|benchmark| benchmark.measured.as_str()).collect();
    if ages.len() > 1 {
        let each = report
            .benchmarks
            .iter()
            .map(|benchmark| format!("`{}` {}", benchmark.name, benchmark.measured));
        notes.push(format!("parts of different runs: {}", each.collect::<Vec<_>>().join("; ")));
    }
    notes
}

/// Says how the ratio differs from one state of the machine to the other.
fn by_state(benchmark: &BenchmarkResult, comparison: &Comparison) -> Option<String> {
    let by_state = comparison.evaluate(benchmark).by_state;
    let [(_, near), (_, far)] = by_state.as_slice() else { return None };
    let [ours, theirs] = [&comparison.ours, comparison.beside.as_ref()?];
    Some(format!(
        "`{}`: {} beside {}: {} near, {} far",
        benchmark.name,
        title(benchmark, ours),
        title(benchmark, theirs),
        interval(near),
        interval(far)
    ))
}

#[cfg(test)]
mod tests {
    use super::super::{CacheDistance, example};
    use super::*;

    #[test]
    fn the_table_shows_ratios_targets_and_what_is_missing() {
        let text = table(&example::report());
        let lines = [
            "| WRITE, 1 MiB messages | 45.0 Gbit/s (40.0 – 50.0) | TCP, cubic \
             | 36.0 Gbit/s (30.0 – 40.0) | **1.25** (1.10 – 1.33) | ≥ 1.10 × | pass |",
            "|  | 45.0 Gbit/s (40.0 – 50.0) | TCP, BBR |  |  | ≥ 1.50 × | not measured: TCP, BBR failed |",
            "| raw trains |  |  | ≥ 0.85 × | not measured: raw_trains is not built |",
            "1 targets passed, 0 failed, 0 open, 2 not measured.",
            "- `write-4300`: TCP, BBR failed in 5 of 5 runs; the first said: unable to set",
            "- sockperf is not installed (package sockperf): its lines are missing",
            "medians of 5 rounds in turn, with least and most",
            "To repeat it: `cargo xtask bench`.",
        ];
        for line in lines {
            assert!(text.contains(line), "{line}\nis not in\n{text}");
        }
        assert!(!text.contains("parts of different runs"), "{text}");
    }

    #[test]
    fn a_target_that_was_missed_stands_out() {
        let mut report = example::report();
        let mut with_target = |target| {
            report.benchmarks[0].comparisons[0] =
                Comparison::beside("roce", Figure::Gbits, "cubic").at_least(target);
            table(&report)
        };
        let text = with_target(1.4);
        assert!(text.contains("| ≥ 1.40 × | **fail** |"), "{text}");
        assert!(text.contains("0 targets passed, 1 failed, 0 open"), "{text}");
        let text = with_target(1.3);
        assert!(text.contains("| ≥ 1.30 × | open |"), "{text}");
        assert!(text.contains("0 targets passed, 0 failed, 1 open"), "{text}");
    }

    #[test]
    fn the_table_counts_the_runs_in_each_state_and_the_pairs() {
        let mut report = example::report();
        assert_eq!(states(&report), None);
        let distances = [(50.0, 52.0), (50.0, 320.0), (310.0, 320.0), (330.0, 320.0), (51.0, 50.0)];
        for candidate in &mut report.benchmarks[0].candidates[..2] {
            for (run, (before, after)) in candidate.points[0].runs.iter_mut().zip(distances) {
                run.cache = Some(CacheDistance::new(Some(before), Some(after), 100.0));
            }
        }
        report.set_cache_states();
        let text = table(&report);
        for part in [
            "in less than 127 ns around 4 runs (typically 50 ns), and in more around 4 (typically 320 ns); \
             around 2 the state changed",
            "**1.29** (1.10 – 1.33), 4 pairs | ≥ 1.10 × | open |",
        ] {
            assert!(text.contains(part), "{part}\nis not in\n{text}");
        }
    }

    #[test]
    fn parts_of_different_runs_are_told_apart() {
        let mut report = example::report();
        let other =
            BenchmarkResult { measured: "later".to_owned(), ..BenchmarkResult::named("b", "b") };
        report.benchmarks.push(other);
        let text = table(&report);
        assert!(text.contains("parts of different runs: `write-4300` 2026-11-21"), "{text}");
    }

    #[test]
    fn whatever_a_program_says_stays_in_one_line() {
        let mut report = example::report();
        let runs = &mut report.benchmarks[0].candidates[2].points[0].runs;
        runs[0] = super::super::Run::failed(1, "two\nlines |");
        let text = table(&report);
        assert!(text.contains("the first said: two lines |\n"), "{text}");
    }
}
