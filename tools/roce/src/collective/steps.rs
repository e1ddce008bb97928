//! Times of the steps of operations, and the share spent waiting for the neighbour.

use std::collections::BTreeMap;

use roce_collectives::{Report, StepRecord};
use serde_json::{Value, json};

use super::job::BufferMode;
use super::number_format::fitted;

/// One step of one rank, over all timed operations of one size. Times are nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StepTimes {
    pub(crate) step: u32,
    /// The number of measurements.
    pub(crate) count: u64,
    pub(crate) min: u64,
    pub(crate) median: u64,
    pub(crate) percentile_99: u64,
    pub(crate) max: u64,
    /// The total time.
    pub(crate) total: u64,
    /// The time of these spent waiting for the previous rank.
    pub(crate) waited: u64,
}

/// The times of a step with rank, size and placement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StepLine {
    pub(crate) rank: u32,
    pub(crate) size: u64,
    pub(crate) placement: String,
    pub(crate) times: StepTimes,
}

impl StepTimes {
    /// Summarises the records of each step.
    pub(crate) fn of(records: impl IntoIterator<Item = StepRecord>) -> Vec<Self> {
        let mut steps: BTreeMap<u32, (Vec<u64>, u64)> = BTreeMap::new();
        for record in records {
            if let Some(latency) = record.latency() {
                let (latencies, waited) = steps.entry(record.step).or_default();
                latencies.push(latency);
                *waited += record.waited.min(latency);
            }
        }
        let sum_up = |(step, (mut latencies, waited)): (u32, (Vec<u64>, u64))| {
            latencies.sort_unstable();
            let count = latencies.len();
            // Nearest rank.
            let percentile = |share: usize| latencies[(count * share).div_ceil(100).max(1) - 1];
            Self {
                step,
                count: count as u64,
                min: latencies[0],
                median: percentile(50),
                percentile_99: percentile(99),
                max: latencies[count - 1],
                total: latencies.iter().sum(),
                waited,
            }
        };
        steps.into_iter().map(sum_up).collect()
    }

    /// Returns the fields of the report to rank 0.
    pub(crate) fn fields(&self, size: u64, placement: BufferMode) -> Vec<(&'static str, String)> {
        vec![
            ("size", size.to_string()),
            ("placement", placement.name().to_owned()),
            ("step", self.step.to_string()),
            ("count", self.count.to_string()),
            ("min", self.min.to_string()),
            ("median", self.median.to_string()),
            ("p99", self.percentile_99.to_string()),
            ("max", self.max.to_string()),
            ("total", self.total.to_string()),
            ("waited", self.waited.to_string()),
        ]
    }

    fn share_waited(&self) -> f64 {
        self.waited as f64 / self.total.max(1) as f64
    }
}

impl StepLine {
    /// Parses a report; `None` if it is another one.
    pub(crate) fn from_report(report: &Report) -> Option<Self> {
        let number = |name: &str| report.value(name)?.parse().ok();
        Some(Self {
            rank: report.rank,
            size: number("size")?,
            placement: report.value("placement")?.to_owned(),
            times: StepTimes {
                step: u32::try_from(number("step")?).ok()?,
                count: number("count")?,
                min: number("min")?,
                median: number("median")?,
                percentile_99: number("p99")?,
                max: number("max")?,
                total: number("total")?,
                waited: number("waited")?,
            },
        })
    }

    pub(crate) fn to_json(&self) -> Value {
        let micros = |nanos: u64| nanos as f64 / 1e3;
        let times = &self.times;
        json!({
            "size": self.size,
            "placement": self.placement,
            "rank": self.rank,
            "step": times.step,
            "count": times.count,
            "min_us": micros(times.min),
            "median_us": micros(times.median),
            "p99_us": micros(times.percentile_99),
            "max_us": micros(times.max),
            "waiting": times.share_waited(),
        })
    }
}

/// Returns the table of all steps by size.
pub(crate) fn table(lines: &[StepLine]) -> String {
    let mut sorted: Vec<&StepLine> = lines.iter().collect();
    // Stable: sizes and placements keep the order of measurement.
    let mut order: Vec<(u64, &str)> = Vec::new();
    for line in lines {
        let key = (line.size, line.placement.as_str());
        if !order.contains(&key) {
            order.push(key);
        }
    }
    let index =
        |line: &StepLine| order.iter().position(|key| *key == (line.size, line.placement.as_str()));
    sorted.sort_by_key(|line| (index(line), line.rank, line.times.step));
    let mut text = String::new();
    let mut current = None;
    for line in sorted {
        if current != Some((line.size, &line.placement)) {
            current = Some((line.size, &line.placement));
            let assignment = if line.placement == "in" { "in place" } else { "out of place" };
            text += &format!(
                "#\n# Steps of {} bytes {assignment}, {} measured: from the first message posted to the last \
                 one taken in\n# {:>5}  {:>5}  {:>8}  {:>8}  {:>8}  {:>8}  {:>8}\n\
                 # {:>5}  {:>5}  {:>8}  {:>8}  {:>8}  {:>8}  {:>8}\n",
                line.size,
                line.times.count,
                "rank",
                "step",
                "min",
                "median",
                "99%",
                "max",
                "waiting",
                "",
                "",
                "(us)",
                "(us)",
                "(us)",
                "(us)",
                "(%)"
            );
        }
        let times = &line.times;
        let micros = |nanos: u64| fitted(nanos as f64 / 1e3, 8);
        text += &format!(
            "# {:>5}  {:>5}  {}  {}  {}  {}  {}\n",
            line.rank,
            times.step,
            micros(times.min),
            micros(times.median),
            micros(times.percentile_99),
            micros(times.max),
            fitted(times.share_waited() * 100.0, 8),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(operation: u64, step: u32, latency: u64, waited: u64) -> StepRecord {
        StepRecord {
            operation,
            step,
            begun: 0,
            posted: Some(1000),
            received: Some(1000 + latency / 2),
            done: Some(1000 + latency),
            waited,
            messages: 1,
            bytes: 4,
        }
    }

    #[test]
    fn each_step_is_summarised_separately() {
        let records = (1..=200).flat_map(|i| [record(i, 0, i * 10, i * 5), record(i, 1, 7, 100)]);
        let times = StepTimes::of(records);
        let first = StepTimes {
            step: 0,
            count: 200,
            min: 10,
            median: 1000,
            percentile_99: 1980,
            max: 2000,
            total: 201_000,
            waited: 100_500,
        };
        assert_eq!(times[0], first);
        assert_eq!(times[1].waited, times[1].total, "no more than all of it was waiting");
        assert!(StepTimes::of([StepRecord { done: None, ..record(0, 0, 1, 0) }]).is_empty());
    }

    #[test]
    fn rank_0_shows_the_reported_steps() {
        let of_rank = |rank: u32| {
            StepTimes::of([record(0, 0, 12_340, 1234), record(0, 1, 9_000, 0)]).into_iter().map(
                move |times| {
                    let fields = times.fields(4, BufferMode::Out).into_iter();
                    let fields = fields.map(|(key, value)| (key.to_owned(), value)).collect();
                    let report = Report { rank, kind: "step".to_owned(), fields };
                    StepLine::from_report(&report).unwrap()
                },
            )
        };
        // Reports arrive in any order.
        let lines: Vec<_> = [2, 0, 1].into_iter().flat_map(of_rank).collect();
        insta::assert_snapshot!("steps", table(&lines));
        insta::assert_snapshot!("steps_json", format!("{:#}", lines[0].to_json()));
    }

    #[test]
    fn an_incomplete_report_is_ignored() {
        let report = Report { rank: 0, kind: "step".to_owned(), fields: Vec::new() };
        assert_eq!(StepLine::from_report(&report), None);
    }
}
