//! The table: one line for each comparison, with its target and whether that was met.

use std::fmt::Write;

use super::figure::three_digits;
use super::{Figure, Judged, Report, RowResult, Summary, Target, Verdict};

/// The table as Markdown, with what must be known to read it.
pub fn table(report: &Report) -> String {
    let mut text = format!("{}\n\n{}\n{}\n\n", heading(report), lines(report), score(report));
    for note in notes(report) {
        // A String takes everything.
        let _ = writeln!(text, "- {note}");
    }
    text
}

fn lines(report: &Report) -> String {
    let mut text = HEAD.to_owned();
    for row in &report.rows {
        let mut last = String::new();
        for target in &row.targets {
            let what = what(row, target);
            // Said once, not in every line.
            text += &line(row, target, if what == last { "" } else { &what });
            last = what;
        }
    }
    text
}

const HEAD: &str = "\
| what | ours | beside | | ours / beside | wanted | |
|---|---|---|---|---|---|---|
";

fn heading(report: &Report) -> String {
    let about = &report.about;
    let rounds = if about.rounds == 1 {
        "one round".to_owned()
    } else {
        format!("medians of {} rounds in turn, with least and most", about.rounds)
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

/// What a line is about: the row, and of it what differs from line to line.
fn what(row: &RowResult, target: &Target) -> String {
    let mut what = row.title.clone();
    if let (Some(axis), Some(x)) = (&row.axis, target.at) {
        let _ = write!(what, ", {}", axis.at(x));
    }
    if target.ours != "roce" {
        let _ = write!(what, ": {}", title(row, &target.ours));
    }
    if matches!(
        target.figure,
        Figure::Micros99 | Figure::Micros999 | Figure::MinShare | Figure::MaxShare
    ) {
        let _ = write!(what, ", {}", target.figure);
    }
    what
}

fn title<'a>(row: &'a RowResult, name: &'a str) -> &'a str {
    row.contestant(name).map_or(name, |contestant| &contestant.title)
}

fn line(row: &RowResult, target: &Target, what: &str) -> String {
    let Judged { ours, theirs, ratio, verdict } = target.judge(row);
    let figure = target.figure;
    let ours = ours.map(|ours| amount(figure, ours)).unwrap_or_default();
    let beside = target.beside.as_deref().map(|name| title(row, name)).unwrap_or_default();
    let theirs = theirs.map(|theirs| amount(figure, theirs)).unwrap_or_default();
    let ratio = ratio.map(|ratio| {
        let of_one = ratio.count == 1;
        let [median, low, high] = [ratio.median, ratio.low, ratio.high].map(three_digits);
        if of_one { format!("**{median}**") } else { format!("**{median}** ({low} – {high})") }
    });
    let verdict = match verdict {
        Verdict::Met => "met".to_owned(),
        Verdict::NotMet => "**not met**".to_owned(),
        Verdict::Reported => String::new(),
        Verdict::NotJudged(why) => format!("not measured: {why}"),
    };
    let ratio = ratio.unwrap_or_default();
    let wanted = target.in_words();
    format!("| {what} | {ours} | {beside} | {theirs} | {ratio} | {wanted} | {verdict} |\n")
}

fn amount(figure: Figure, summary: Summary) -> String {
    let median = figure.with_unit(summary.median);
    if summary.count == 1 || summary.low == summary.high {
        return median;
    }
    format!("{median} ({} – {})", figure.bare(summary.low), figure.bare(summary.high))
}

/// How many targets were met.
pub(super) fn score(report: &Report) -> String {
    let verdicts = report.rows.iter().flat_map(|row| {
        let wanted = row.targets.iter().filter(|target| target.bound.is_some());
        wanted.map(|target| target.judge(row).verdict)
    });
    let (mut met, mut not_met, mut not_judged) = (0, 0, 0);
    for verdict in verdicts {
        match verdict {
            Verdict::Met => met += 1,
            Verdict::NotMet => not_met += 1,
            Verdict::Reported => {}
            Verdict::NotJudged(_) => not_judged += 1,
        }
    }
    let mut text = format!("{met} targets met, {not_met} not met");
    if not_judged > 0 {
        let _ = write!(text, ", {not_judged} not measured");
    }
    text + "."
}

fn notes(report: &Report) -> Vec<String> {
    let mut notes = Vec::new();
    for row in &report.rows {
        for contestant in &row.contestants {
            let (runs, failed) = contestant.count();
            if let Some(why) = contestant.first_failure() {
                let why = why.split_whitespace().collect::<Vec<_>>().join(" ");
                notes.push(format!(
                    "`{}`: {} failed in {failed} of {runs} runs; the first said: {why}",
                    row.name, contestant.title
                ));
            }
        }
        notes.extend(row.notes.iter().map(|note| format!("`{}`: {note}", row.name)));
    }
    let missing = report.peers.iter().filter(|peer| peer.version.is_none());
    notes.extend(missing.map(|peer| {
        format!(
            "{} is not installed (package {}): its lines are missing",
            peer.program, peer.package
        )
    }));
    let ages: std::collections::BTreeSet<&str> =
        report.rows.iter().map(|row| row.measured.as_str()).collect();
    if ages.len() > 1 {
        let each = report.rows.iter().map(|row| format!("`{}` {}", row.name, row.measured));
        notes.push(format!("parts of different runs: {}", each.collect::<Vec<_>>().join("; ")));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::*;

    #[test]
    fn the_table_shows_ratios_targets_and_what_is_missing() {
        let text = table(&example::report());
        let lines = [
            "| WRITE, 1 MiB messages | 45.0 Gbit/s (40.0 – 50.0) | TCP, cubic \
             | 36.0 Gbit/s (30.0 – 40.0) | **1.25** (1.25 – 1.33) | ≥ 1.10 × | met |",
            "|  | 45.0 Gbit/s (40.0 – 50.0) | TCP, BBR |  |  | ≥ 1.50 × | not measured: TCP, BBR failed |",
            "| raw trains |  |  | ≥ 0.85 × | not measured: raw_trains is not built |",
            "1 targets met, 0 not met, 2 not measured.",
            "- `write-4300`: TCP, BBR failed in 3 of 3 runs; the first said: unable to set",
            "- sockperf is not installed (package sockperf): its lines are missing",
            "medians of 3 rounds in turn, with least and most",
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
        report.rows[0].targets[0] = Target::beside("roce", Figure::Gbits, "cubic").at_least(1.3);
        let text = table(&report);
        assert!(text.contains("| ≥ 1.30 × | **not met** |"), "{text}");
        assert!(text.contains("0 targets met, 1 not met"), "{text}");
    }

    #[test]
    fn parts_of_different_runs_are_told_apart() {
        let mut report = example::report();
        let other = RowResult { measured: "later".to_owned(), ..RowResult::named("b", "b") };
        report.rows.push(other);
        let text = table(&report);
        assert!(text.contains("parts of different runs: `write-4300` 2026-11-21"), "{text}");
    }

    #[test]
    fn whatever_a_program_says_stays_in_one_line() {
        let mut report = example::report();
        let runs = &mut report.rows[0].contestants[2].points[0].runs;
        runs[0] = super::super::Run::failed(1, "two\nlines |");
        let text = table(&report);
        assert!(text.contains("the first said: two lines |\n"), "{text}");
    }
}
