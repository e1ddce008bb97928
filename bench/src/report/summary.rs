//! The benchmarks that README.md shows, between two comments of that page.

use super::markdown::interval;
use super::{Comparison, Figure, Report, Summary};

/// A line of the summary: a title, a benchmark, a candidate of it, and the program beside it.
struct Line {
    title: &'static str,
    benchmark: &'static str,
    ours: &'static str,
    figure: Figure,
    beside: &'static str,
    /// What that program is, for a reader who would use it instead.
    anchor: &'static str,
}

const LINES: [Line; 6] = [
    Line {
        title: "1 MiB WRITE",
        benchmark: "write-4300",
        ours: "roce",
        figure: Figure::Gbits,
        beside: "cubic",
        anchor: "iperf3 over TCP",
    },
    Line {
        title: "8 B half round trip",
        benchmark: "latency",
        ours: "write",
        figure: Figure::MicrosMedian,
        beside: "tcp-spin",
        anchor: "TCP sockets, both ends spinning",
    },
    Line {
        title: "8 B messages, one by one",
        benchmark: "rate",
        ours: "single",
        figure: Figure::PerSecond,
        beside: "tcp",
        anchor: "TCP sockets, one `send` each",
    },
    Line {
        title: "allreduce of 4 B, 3 ranks",
        benchmark: "allreduce-one-float",
        ours: "roce",
        figure: Figure::MicrosMean,
        beside: "openmpi",
        anchor: "Open MPI over TCP",
    },
    Line {
        title: "allreduce of 64 MiB, 3 ranks",
        benchmark: "allreduce-64m-3",
        ours: "roce",
        figure: Figure::BusGbytes,
        beside: "openmpi",
        anchor: "Open MPI over TCP",
    },
    Line {
        title: "1 MiB WRITE, 1 % of packets lost",
        benchmark: "loss-packets-1",
        ours: "roce",
        figure: Figure::Gbits,
        beside: "cubic",
        anchor: "iperf3 over TCP",
    },
];

/// Returns a few lines of the report as Markdown, with a link to `table`.
///
/// A benchmark that the report does not have is left out.
pub fn summary(report: &Report, table: &str) -> String {
    let lines: String = LINES.iter().filter_map(|line| line.render(report)).collect();
    let about = &report.about;
    format!(
        "| | roce | what is used instead | its figure | roce beside it |\n|---|---|---|---|---|\n{lines}\n\
         Measured {} on {} cores of {}, {}. [Full table]({table}).",
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
        let ratio = evaluated.ratio.map(|ratio| interval(&ratio));
        let of_what = match self.figure {
            Figure::MicrosMean | Figure::MicrosMedian => "the time",
            _ => "the rate",
        };
        Some(format!(
            "| {} | {} | {} | {} | {} × {of_what} |\n",
            self.title,
            amount(evaluated.ours),
            self.anchor,
            amount(evaluated.theirs),
            ratio.unwrap_or_default(),
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
    fn a_line_has_medians_what_is_used_instead_and_their_ratio() {
        let text = summary(&example::report(), "table.md");
        let line = "| 1 MiB WRITE | 45.0 Gbit/s | iperf3 over TCP | 36.0 Gbit/s | **1.25** (1.10 – 1.33) × the rate |\n";
        assert!(text.contains(line), "{text}");
        assert!(text.ends_with("[Full table](table.md)."), "{text}");
        assert!(!text.contains("allreduce"), "{text}");
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
