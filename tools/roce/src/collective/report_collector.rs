//! Collects the reports of the ranks at rank 0.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use roce_collectives::{Group, Report};
use serde_json::{Value, json};

use super::case::Case;
use super::job::BufferMode;
use super::report::{Measured, Member};
use super::steps::StepLine;
use super::trace::{self, RankEvent};
use crate::error::Result;

/// The mean time to show, numbered as in nccl-tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Average {
    Rank0,
    Mean,
    Min,
    Max,
}

/// All reports so far.
#[derive(Debug, Default)]
pub(crate) struct ReportCollector {
    members: BTreeMap<u32, Member>,
    times: Vec<Report>,
    pub(crate) steps: Vec<StepLine>,
    pub(crate) events: Vec<RankEvent>,
    /// Events that ranks dropped.
    pub(crate) lost_events: u64,
    trace_ends: u32,
    /// Results of ranks: size, rank, the first element.
    values: Vec<(u64, u32, String)>,
}

/// Timeout of one wait for a report; waits repeat until a rank fails.
const REPORT_TIMEOUT: Duration = Duration::from_secs(1);
/// Timeout of the first reports.
const JOIN_REPORT_TIMEOUT: Duration = Duration::from_millis(300);

impl ReportCollector {
    fn take(&mut self, report: Report) {
        let text = |name: &str| report.value(name).unwrap_or_default().to_owned();
        match report.kind.as_str() {
            "device" => {
                let pid = text("pid").parse().unwrap_or(0);
                let member =
                    Member { rank: report.rank, pid, host: text("host"), devices: text("devices") };
                self.members.insert(report.rank, member);
            }
            "time" => {
                if let (Some(first), Ok(size)) = (report.value("first"), text("size").parse()) {
                    self.values.push((size, report.rank, first.to_owned()));
                }
                self.times.push(report);
            }
            "step" => self.steps.extend(StepLine::from_report(&report)),
            "trace" => self.events.extend(trace::unpack(&report)),
            "traced" => {
                self.lost_events += text("lost").parse().unwrap_or(0);
                self.trace_ends += 1;
            }
            // Other programs may send other reports.
            _ => {}
        }
    }

    /// Collects reports until `enough` returns true.
    fn wait(&mut self, group: &mut Group, enough: impl Fn(&Self) -> bool) -> Result {
        while !enough(self) {
            if let Some(report) = group.next_report(REPORT_TIMEOUT)? {
                self.take(report);
            }
        }
        Ok(())
    }

    /// Returns true if all ranks have described themselves, after a short wait. Other programs do
    /// not.
    ///
    /// # Errors
    /// When a rank fails.
    pub(crate) fn has_all_members(&mut self, group: &mut Group) -> Result<bool> {
        let until = Instant::now() + JOIN_REPORT_TIMEOUT;
        while self.members.len() < group.size() as usize {
            let left = until.saturating_duration_since(Instant::now());
            match group.next_report(left)? {
                Some(report) => self.take(report),
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Waits until all ranks have reported the time of a size.
    ///
    /// # Errors
    /// When a rank fails.
    pub(crate) fn wait_for_times(
        &mut self,
        group: &mut Group,
        case: &Case,
        placement: BufferMode,
        average: Average,
    ) -> Result<Measured> {
        let ranks = group.size() as usize;
        let size = case.size.to_string();
        let is_of = |report: &Report| {
            report.value("size") == Some(&size)
                && report.value("placement") == Some(placement.name())
        };
        let count =
            |collector: &Self| collector.times.iter().filter(|report| is_of(report)).count();
        self.wait(group, |collector| count(collector) >= ranks)?;
        let (of_this, others) = std::mem::take(&mut self.times).into_iter().partition(is_of);
        self.times = others;
        Ok(sum_up(&of_this, average))
    }

    /// Waits for the events of all ranks that run this program.
    ///
    /// # Errors
    /// When a rank fails.
    pub(crate) fn wait_for_traces(&mut self, group: &mut Group) -> Result {
        // Only ranks that described themselves send events.
        let ours = self.members.len() as u32;
        self.wait(group, |collector| collector.trace_ends >= ours)
    }

    /// Returns all ranks; of other programs only the rank is known.
    pub(crate) fn members(&self, ranks: u32) -> Vec<Member> {
        let stranger = |rank| Member {
            rank,
            pid: 0,
            host: "?".to_owned(),
            devices: "? (another program)".to_owned(),
        };
        let member = |rank| self.members.get(&rank).cloned().unwrap_or_else(|| stranger(rank));
        (0..ranks).map(member).collect()
    }

    /// Returns the results, one line for each size; equal ranks are listed together.
    pub(crate) fn value_lines(&self, ranks: u32) -> Vec<String> {
        let mut sizes: Vec<u64> = self.values.iter().map(|(size, ..)| *size).collect();
        sizes.dedup();
        let mut lines = Vec::new();
        for size in sizes {
            let mut by_value: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
            for (_, rank, value) in self.values.iter().filter(|(of, ..)| *of == size) {
                by_value.entry(value).or_default().push(*rank);
            }
            let line = match by_value.first_key_value() {
                Some((value, of)) if by_value.len() == 1 && of.len() >= ranks as usize => {
                    format!("every rank ends with {value}")
                }
                _ => {
                    let parts = by_value.iter().map(|(value, of)| {
                        let mut of = of.clone();
                        of.sort_unstable();
                        of.dedup();
                        let of: Vec<String> = of.iter().map(u32::to_string).collect();
                        format!("rank {} with {value}", of.join(", "))
                    });
                    format!("what ranks end with: {}", parts.collect::<Vec<_>>().join("; "))
                }
            };
            let line = format!("{size} bytes: {line}");
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        lines
    }

    /// Returns the results as JSON.
    pub(crate) fn values_json(&self) -> Value {
        let value =
            |(size, rank, value): &_| json!({ "size": size, "rank": rank, "first_element": value });
        self.values.iter().map(value).collect()
    }
}

fn sum_up(reports: &[Report], average: Average) -> Measured {
    let number = |report: &Report, name| report.value(name)?.parse::<u64>().ok();
    let nanos: Vec<(u32, u64)> = reports
        .iter()
        .filter_map(|report| Some((report.rank, number(report, "nanoseconds")?)))
        .collect();
    let values = || nanos.iter().map(|(_, nanos)| *nanos as f64);
    let shown = match average {
        Average::Rank0 => nanos.iter().find(|(rank, _)| *rank == 0).map_or(0.0, |(_, n)| *n as f64),
        Average::Mean => values().sum::<f64>() / nanos.len().max(1) as f64,
        Average::Min => values().reduce(f64::min).unwrap_or(0.0),
        Average::Max => values().reduce(f64::max).unwrap_or(0.0),
    };
    let wrong: Vec<u64> = reports.iter().filter_map(|report| number(report, "wrong")).collect();
    let wrong = (!wrong.is_empty()).then(|| wrong.into_iter().fold(0, u64::saturating_add));
    Measured { seconds: Some(shown / 1e9), wrong }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(rank: u32, nanoseconds: u64, wrong: Option<u64>) -> Report {
        let mut fields = vec![
            ("size".to_owned(), "4".to_owned()),
            ("nanoseconds".to_owned(), nanoseconds.to_string()),
        ];
        fields.extend(wrong.map(|wrong| ("wrong".to_owned(), wrong.to_string())));
        Report { rank, kind: "time".to_owned(), fields }
    }

    #[test]
    fn times_are_averaged_as_requested_and_wrong_elements_added() {
        let reports = [time(0, 1000, Some(1)), time(1, 2000, Some(0)), time(2, 6000, Some(2))];
        let cases = [
            (Average::Rank0, 1e-6),
            (Average::Mean, 3e-6),
            (Average::Min, 1e-6),
            (Average::Max, 6e-6),
        ];
        for (average, seconds) in cases {
            let sum = sum_up(&reports, average);
            assert!((sum.seconds.unwrap() - seconds).abs() < 1e-12, "{average:?}");
            assert_eq!(sum.wrong, Some(3));
        }
        assert_eq!(sum_up(&[time(0, 1, None)], Average::Mean).wrong, None);
        assert_eq!(sum_up(&[], Average::Mean).seconds, Some(0.0));
    }

    #[test]
    fn ranks_with_equal_results_are_listed_together() {
        let mut collector = ReportCollector::default();
        let mut end = |rank, value: &str| {
            let mut report = time(rank, 1, Some(0));
            report.fields.push(("first".to_owned(), value.to_owned()));
            collector.take(report);
        };
        (0..3).for_each(|rank| end(rank, "6.0"));
        assert_eq!(collector.value_lines(3), ["4 bytes: every rank ends with 6.0"]);
        let mut collector = ReportCollector::default();
        for (rank, value) in [(2, "6.0"), (0, "1.0"), (1, "6.0")] {
            let mut report = time(rank, 1, Some(0));
            report.fields.push(("first".to_owned(), value.to_owned()));
            collector.take(report);
        }
        let expected = "4 bytes: what ranks end with: rank 0 with 1.0; rank 1, 2 with 6.0";
        assert_eq!(collector.value_lines(3), [expected]);
    }

    #[test]
    fn a_rank_of_another_program_is_listed() {
        let mut collector = ReportCollector::default();
        let fields = [("pid", "7"), ("host", "node"), ("devices", "[eth0]")];
        let fields = fields.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec();
        collector.take(Report { rank: 1, kind: "device".to_owned(), fields });
        collector.take(Report { rank: 1, kind: "weather".to_owned(), fields: Vec::new() });
        let members = collector.members(2);
        assert_eq!((members[1].pid, members[1].host.as_str()), (7, "node"));
        assert!(members[0].devices.contains("another program"));
    }
}
