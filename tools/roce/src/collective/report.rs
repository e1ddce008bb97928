//! The output of rank 0: the table of nccl-tests, or the same as JSON or CSV.

use std::io::Write;

use serde_json::{Map, Value, json};

use super::case::Case;
use super::job::{BufferMode, Job, Progression};
use super::number_format::{fitted, general};
use crate::error::Result;
use crate::output;

/// One half of a line: the result of one placement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Measured {
    /// Mean seconds of an operation, if any was timed.
    pub(crate) seconds: Option<f64>,
    /// Wrong elements of all ranks, if checked.
    pub(crate) wrong: Option<u64>,
}

/// A line of the table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) case: Case,
    pub(crate) out: Option<Measured>,
    pub(crate) within: Option<Measured>,
}

/// A rank, as the list of devices shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) rank: u32,
    pub(crate) pid: u64,
    pub(crate) host: String,
    /// The interfaces; unknown for another program.
    pub(crate) devices: String,
}

/// The output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    Table,
    Json,
    Csv,
}

/// A report to `output`.
#[derive(Debug)]
pub(crate) struct Report<W> {
    style: Style,
    output: W,
    job: Job,
    ranks: u32,
    members: Vec<Member>,
    rows: Vec<Row>,
    more: Map<String, Value>,
}

impl<W: Write> Report<W> {
    /// Prints the head.
    pub(crate) fn new(style: Style, job: &Job, ranks: u32, output: W) -> Result<Self> {
        let job = job.clone();
        let (members, rows, more) = (Vec::new(), Vec::new(), Map::new());
        let mut report = Self { style, output, job, ranks, members, rows, more };
        match style {
            Style::Table => report.print(&opening(&report.job))?,
            Style::Json => {}
            Style::Csv => report.print(&format!("{CSV_COLUMNS}\n"))?,
        }
        Ok(report)
    }

    fn print(&mut self, text: &str) -> Result {
        let written = self.output.write_all(text.as_bytes());
        written.and_then(|()| self.output.flush()).map_err(output::cannot_print)
    }

    /// Prints the ranks and the names of the columns.
    pub(crate) fn introduce(&mut self, members: Vec<Member>) -> Result {
        if self.style == Style::Table {
            let lines: Vec<String> = members.iter().map(member_line).collect();
            self.print(&format!("# Using devices\n{}\n{COLUMNS}", lines.join("\n")))?;
        }
        self.members = members;
        Ok(())
    }

    /// Prints a line.
    pub(crate) fn row(&mut self, row: Row) -> Result {
        match self.style {
            Style::Table => self.print(&format!("{}\n", table_line(&row, self.ranks)))?,
            Style::Json => {}
            Style::Csv => self.print(&csv_lines(&row, self.ranks))?,
        }
        self.rows.push(row);
        Ok(())
    }

    /// Prints a comment line, in tables only.
    pub(crate) fn note(&mut self, text: &str) -> Result {
        self.text(&format!("# {text}\n"))
    }

    /// Prints text unchanged, in tables only.
    pub(crate) fn text(&mut self, text: &str) -> Result {
        if self.style == Style::Table { self.print(text) } else { Ok(()) }
    }

    /// Adds a part to the JSON.
    pub(crate) fn add(&mut self, name: &str, value: Value) {
        self.more.insert(name.to_owned(), value);
    }

    /// Returns the output format.
    pub(crate) fn style(&self) -> Style {
        self.style
    }

    /// Returns the wrong elements of all lines.
    pub(crate) fn wrong(&self) -> u64 {
        self.halves().filter_map(|(_, half)| half.wrong).fold(0, u64::saturating_add)
    }

    /// Ends the report.
    pub(crate) fn finish(&mut self) -> Result {
        match self.style {
            Style::Table => {
                let wrong = self.wrong();
                let verdict = if wrong == 0 { "OK" } else { "FAILED" };
                let name = self.job.collective.name();
                let average = self.average().map_or(NOT_MEASURED.to_owned(), general);
                self.print(&format!(
                    "# Out of bounds values : {wrong} {verdict}\n# Avg bus bandwidth    : {average} \n\
                     #\n# Collective test concluded: {name}\n"
                ))
            }
            Style::Json => self.print(&format!("{:#}\n", self.to_json())),
            Style::Csv => Ok(()),
        }
    }

    fn halves(&self) -> impl Iterator<Item = (&Case, &Measured)> {
        self.rows.iter().flat_map(|row| {
            [row.out.as_ref(), row.within.as_ref()]
                .into_iter()
                .flatten()
                .map(|half| (&row.case, half))
        })
    }

    /// Returns the mean bus bandwidth of all results, if any was timed.
    fn average(&self) -> Option<f64> {
        let bus = |(case, half): (&Case, &Measured)| {
            half.seconds.map(|seconds| case.bandwidths(seconds, self.ranks).1)
        };
        let timed: Vec<f64> = self.halves().filter_map(bus).collect();
        (!timed.is_empty()).then(|| timed.iter().sum::<f64>() / timed.len() as f64)
    }

    /// Returns the report with the names of nccl-tests.
    pub(crate) fn to_json(&self) -> Value {
        let job = &self.job;
        let mut config = Map::new();
        let mut say = |name: &str, value: Value| drop(config.insert(name.to_owned(), value));
        say("ranks", json!(self.ranks));
        say("minimum_bytes", json!(job.min));
        say("maximum_bytes", json!(job.max));
        match job.progression {
            Progression::Factor(factor) => say("step_factor", json!(factor)),
            Progression::Step(step) => say("step_bytes", json!(step)),
        }
        say("warmup_iters", json!(job.warmup));
        say("iterations", json!(job.iterations));
        say("validation", json!(job.check));
        say("blocking", json!(job.blocking.number()));
        let devices = self.members.iter().map(|member| {
            json!({
                "rank": member.rank,
                "pid": member.pid,
                "hostname": member.host,
                "device_info": member.devices,
            })
        });
        say("devices", devices.collect());
        let wrong = self.wrong();
        let mut all = json!({
            "program": concat!("roce ", env!("CARGO_PKG_VERSION")),
            "collective": job.collective.name(),
            "config": config,
            "results": self.rows.iter().map(|row| row_json(row, self.ranks)).collect::<Value>(),
            "out_of_bounds": { "count": wrong, "okay": wrong == 0 },
            "average_bus_bandwidth": { "bandwidth": self.average() },
        });
        if let Some(object) = all.as_object_mut() {
            object.extend(self.more.clone());
        }
        all
    }
}

fn opening(job: &Job) -> String {
    let (step, unit) = match job.progression {
        Progression::Factor(factor) => (factor, "factor"),
        Progression::Step(step) => (step, "bytes"),
    };
    format!(
        "# roce {}\n# Collective test starting: {}\n# nThread 1 nGpus 1 minBytes {} maxBytes {} \
         step: {step}({unit}) warmup iters: {} iters: {} agg iters: 1 validation: {} graph: 0\n#\n",
        env!("CARGO_PKG_VERSION"),
        job.collective.name(),
        job.min,
        job.max,
        job.warmup,
        job.iterations,
        job.check,
    )
}

fn member_line(Member { rank, pid, host, devices }: &Member) -> String {
    format!("#  Rank {rank:>2} Pid {pid:>6} on {host:>10} device {devices}")
}

const COLUMNS: &str = "\
#
#                                                              out-of-place                       in-place          
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong 
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)         
";

fn table_line(Row { case, out, within }: &Row, ranks: u32) -> String {
    let half = |half: &Option<Measured>| match half {
        None => " ".repeat(33),
        Some(Measured { seconds, wrong }) => {
            let (algorithm, bus) = bandwidths(case, *seconds, ranks);
            let shown = |value: Option<f64>, width| {
                value.map_or(format!("{NOT_MEASURED:>width$}"), |value| fitted(value, width))
            };
            format!(
                "  {}  {}  {}  {:>6}",
                shown(seconds.map(|seconds| seconds * 1e6), 7),
                shown(algorithm, 6),
                shown(bus, 6),
                wrong.map_or(NOT_MEASURED.to_owned(), |wrong| general(wrong as f64)),
            )
        }
    };
    let line = format!(
        "{:>12}  {:>12}  {:>8}  {:>6}  {:>6}{}{}",
        case.size,
        case.operation.count,
        case.operation.data_type.name(),
        case.op_name(),
        case.root_shown(),
        half(out),
        half(within)
    );
    line.trim_end().to_owned()
}

/// Shown instead of a time, bandwidth or number of wrong elements.
const NOT_MEASURED: &str = "N/A";

/// Returns the algorithm and bus bandwidth of a timed case.
fn bandwidths(case: &Case, seconds: Option<f64>, ranks: u32) -> (Option<f64>, Option<f64>) {
    seconds.map(|seconds| case.bandwidths(seconds, ranks)).unzip()
}

const CSV_COLUMNS: &str =
    "size,count,type,redop,root,placement,time_us,algbw_gb_s,busbw_gb_s,wrong";

fn csv_lines(Row { case, out, within }: &Row, ranks: u32) -> String {
    let mut text = String::new();
    for (placement, half) in [(BufferMode::Out, out), (BufferMode::In, within)] {
        let Some(half) = half else { continue };
        let (algorithm, bus) = bandwidths(case, half.seconds, ranks);
        let shown = |value: Option<f64>, decimals| {
            value.map_or(String::new(), |value| format!("{value:.decimals$}"))
        };
        text += &format!(
            "{},{},{},{},{},{},{},{},{},{}\n",
            case.size,
            case.operation.count,
            case.operation.data_type.name(),
            case.op_name(),
            case.root_shown(),
            placement.name(),
            shown(half.seconds.map(|seconds| seconds * 1e6), 3),
            shown(algorithm, 6),
            shown(bus, 6),
            half.wrong.map_or(String::new(), |wrong| wrong.to_string()),
        );
    }
    text
}

fn row_json(Row { case, out, within }: &Row, ranks: u32) -> Value {
    let half = |half: &Option<Measured>| {
        half.map(|Measured { seconds, wrong }| {
            let (algorithm, bus) = bandwidths(case, seconds, ranks);
            let time = seconds.map(|seconds| seconds * 1e6);
            json!({ "time": time, "alg_bw": algorithm, "bus_bw": bus, "nwrong": wrong })
        })
    };
    json!({
        "size": case.size,
        "count": case.operation.count,
        "type": case.operation.data_type.name(),
        "redop": case.op_name(),
        "root": case.root_shown(),
        "out_of_place": half(out),
        "in_place": half(within),
    })
}

#[cfg(test)]
mod tests {
    use super::super::job::{self, BufferModes};
    use super::*;

    fn printed(style: Style, job: &Job, wrong: Option<u64>) -> String {
        let mut output = Vec::new();
        let mut report = Report::new(style, job, 3, &mut output).unwrap();
        let member = |rank| Member {
            rank,
            pid: 4711 + u64::from(rank),
            host: "node".to_owned(),
            devices: "[eth0] GID 1 ::ffff:10.0.0.1, path MTU 4096".to_owned(),
        };
        report.introduce((0..3).map(member).collect()).unwrap();
        for (case, seconds) in job.cases(3).into_iter().zip([12.34e-6, 1234.5e-6, 12_345_678e-6]) {
            let measured = Measured { seconds: (job.iterations > 0).then_some(seconds), wrong };
            let out = job.placements.all().contains(&BufferMode::Out).then_some(measured);
            report.row(Row { case, out, within: Some(measured) }).unwrap();
        }
        report.finish().unwrap();
        drop(report);
        String::from_utf8(output).unwrap()
    }

    fn job() -> Job {
        Job { min: 1 << 20, max: 4 << 20, ..job::example() }
    }

    #[test]
    fn the_table_is_that_of_nccl_tests() {
        let text = printed(Style::Table, &job(), Some(0));
        let rows = text.lines().filter(|line| !line.starts_with('#'));
        assert!(rows.clone().all(|row| row.split_whitespace().count() == 13));
        assert_eq!(rows.count(), 3);
        insta::assert_snapshot!("table", text);
    }

    #[test]
    fn the_picture_in_the_readme_has_the_columns_of_the_table() {
        let picture = include_str!("../../../../docs/allreduce.svg");
        for line in COLUMNS.lines() {
            assert!(picture.contains(line), "run `cargo xtask picture`: {line} is not in it");
        }
    }

    #[test]
    fn unchecked_elements_are_not_reported_as_right() {
        let text = printed(Style::Table, &job(), Some(5));
        assert!(text.contains("# Out of bounds values : 30 FAILED\n"), "{text}");
        let text = printed(Style::Table, &job(), None);
        assert_eq!(text.matches("N/A").count(), 6, "{text}");
    }

    #[test]
    fn a_placement_that_was_not_measured_leaves_its_columns_empty() {
        let text = printed(Style::Table, &Job { placements: BufferModes::In, ..job() }, Some(0));
        let row = text.lines().find(|line| !line.starts_with('#')).unwrap();
        assert_eq!(row.split_whitespace().count(), 9);
        assert_eq!(row.len(), 52 + 33 + 33);
    }

    #[test]
    fn without_timed_operations_there_is_no_time_and_no_bandwidth() {
        let job = Job { iterations: 0, ..job() };
        let text = printed(Style::Table, &job, Some(0));
        assert_eq!(text.matches("N/A").count(), 3 * 6 + 1, "{text}");
        assert!(text.contains("# Avg bus bandwidth    : N/A \n"), "{text}");
        let csv = printed(Style::Csv, &job, Some(0));
        assert!(csv.lines().skip(1).all(|line| line.ends_with(",,,,0")), "{csv}");
        let json: Value = serde_json::from_str(&printed(Style::Json, &job, Some(0))).unwrap();
        assert_eq!(json["results"][0]["in_place"]["bus_bw"], Value::Null, "{json}");
        assert_eq!(json["average_bus_bandwidth"]["bandwidth"], Value::Null, "{json}");
    }

    #[test]
    fn json_and_csv_say_the_same_under_stable_names() {
        insta::assert_snapshot!("json", printed(Style::Json, &job(), Some(0)));
        insta::assert_snapshot!("csv", printed(Style::Csv, &job(), None));
    }
}
