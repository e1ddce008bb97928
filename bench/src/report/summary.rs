//! The benchmarks that README.md shows, between two comments of that page.

use super::figure::three_digits;
use super::markdown::score;
use super::{Comparison, Figure, Report, Summary, Verdict};

/// A line of the summary: a title, a benchmark, a candidate of it, and the program beside it.
struct Line {
    title: &'static str,
    benchmark: &'static str,
    ours: &'static str,
    figure: Figure,
    beside: &'static str,
}

const LINES: [Line; 7] = [
    Line {
        title: "1 MiB WRITE",
        benchmark: "write-4300",
        ours: "roce",
        figure: Figure::Gbits,
        beside: "cubic",
    },
    Line {
        title: "8 B half round trip",
        benchmark: "latency",
        ours: "write",
        figure: Figure::MicrosMedian,
        beside: "tcp-spin",
    },
    Line {
        title: "8 B messages, one by one",
        benchmark: "rate",
        ours: "single",
        figure: Figure::PerSecond,
        beside: "tcp",
    },
    Line {
        title: "8 B messages, in lists of 64",
        benchmark: "rate",
        ours: "deep",
        figure: Figure::PerSecond,
        beside: "tcp",
    },
    Line {
        title: "allreduce of 4 B, 3 ranks",
        benchmark: "allreduce-one-float",
        ours: "roce",
        figure: Figure::MicrosMean,
        beside: "openmpi",
    },
    Line {
        title: "allreduce of 64 MiB, 3 ranks",
        benchmark: "allreduce-64m-3",
        ours: "roce",
        figure: Figure::BusGbytes,
        beside: "openmpi",
    },
    Line {
        title: "1 MiB WRITE, 1 % of packets lost",
        benchmark: "loss-packets-1",
        ours: "roce",
        figure: Figure::Gbits,
        beside: "cubic",
    },
];

/// Returns a few lines of the report as Markdown, with a link to `table`.
///
/// Each line counts all comparisons of its candidate and figure, those beside other programs too.
/// A benchmark that the report does not have is left out.
pub fn summary(report: &Report, table: &str) -> String {
    let lines: String = LINES.iter().filter_map(|line| line.render(report)).collect();
    let (about, score) = (&report.about, score(report));
    format!(
        "| | ours | TCP | ratio | passed |\n|---|---|---|---|---|\n{lines}\n\
         Measured {} on {} cores of {}, {}. [Full table]({table}): {score}",
        about.date, about.machine.cores, about.machine.processor, about.machine.kernel,
    )
}

impl Line {
    fn render(&self, report: &Report) -> Option<String> {
        let benchmark =
            report.benchmarks.iter().find(|benchmark| benchmark.name == self.benchmark)?;
        let evaluated = Comparison::beside(self.ours, self.figure, self.beside).evaluate(benchmark);
        let amount = |summary: Option<Summary>| {
            summary.map(|summary| self.figure.with_unit(summary.median)).unwrap_or_default()
        };
        let ratio = evaluated.ratio.map(|ratio| three_digits(ratio.median));
        let verdicts = benchmark
            .comparisons
            .iter()
            .filter(|comparison| comparison.ours == self.ours && comparison.figure == self.figure)
            .map(|comparison| comparison.evaluate(benchmark).verdict);
        let (passed, missed) = verdicts.fold((0, 0), |(passed, missed), verdict| match verdict {
            Verdict::Pass => (passed + 1, missed),
            Verdict::Fail => (passed, missed + 1),
            Verdict::NoTarget | Verdict::NotMeasured(_) => (passed, missed),
        });
        Some(format!(
            "| {} | {} | {} | **{}** | {passed} of {} |\n",
            self.title,
            amount(evaluated.ours),
            amount(evaluated.theirs),
            ratio.unwrap_or_default(),
            passed + missed,
        ))
    }
}

/// Returns `page` with `text` between the markers of this name; `None` if the page has not both, in
/// order.
///
/// ```
/// use roce_bench::report::put_between_markers;
/// let page = "# Speed\n<!-- bench -->\nold\n<!-- /bench -->\nmore\n";
/// let page = put_between_markers(page, "bench", "new\n").unwrap();
/// assert_eq!(page, "# Speed\n<!-- bench -->\nnew\n<!-- /bench -->\nmore\n");
/// ```
pub fn put_between_markers(page: &str, name: &str, text: &str) -> Option<String> {
    let (begin, end) = (format!("<!-- {name} -->"), format!("<!-- /{name} -->"));
    let (before, rest) = page.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{begin}\n{}\n{end}{after}", text.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::*;

    #[test]
    fn a_line_has_medians_their_ratio_and_the_targets_passed() {
        let text = summary(&example::report(), "table.md");
        let line = "| 1 MiB WRITE | 45.0 Gbit/s | 36.0 Gbit/s | **1.25** | 1 of 1 |\n\nMeasured ";
        assert!(text.contains(line), "{text}");
        assert!(
            text.ends_with("[Full table](table.md): 1 targets passed, 0 failed, 2 not measured.")
        );
        assert!(!text.contains("allreduce"), "{text}");
    }

    #[test]
    fn a_target_that_was_missed_is_counted() {
        let mut report = example::report();
        let missed = Comparison::beside("roce", Figure::Gbits, "cubic").at_least(1.3);
        report.benchmarks[0].comparisons.push(missed);
        assert!(summary(&report, "table.md").contains("| **1.25** | 1 of 2 |"));
    }

    #[test]
    fn a_page_without_both_markers_is_left_alone() {
        let others = "<!-- other --><!-- /other -->";
        for page in ["", "<!-- bench -->", "<!-- /bench -->\n<!-- bench -->", others] {
            assert_eq!(put_between_markers(page, "bench", "text"), None);
        }
    }

    #[test]
    fn putting_the_same_twice_changes_nothing() {
        let page = "a<!-- bench --><!-- /bench -->b";
        let page = put_between_markers(page, "bench", "text\n\n").unwrap();
        assert_eq!(page, "a<!-- bench -->\ntext\n<!-- /bench -->b");
        assert_eq!(put_between_markers(&page, "bench", "text").as_ref(), Some(&page));
    }
}
