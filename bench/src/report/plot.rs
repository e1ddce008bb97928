//! Plots: a chart for each benchmark that has an axis.

use roce_lab::chart::{self, Chart, PlotError, Series, Shape, bytes, draw};
use serde::{Deserialize, Serialize};

use super::{BenchmarkResult, Figure, Report};

/// What the points of a curve are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Axis {
    /// Bytes of a message.
    Bytes,
    /// Queue pairs that share a link.
    QueuePairs,
    /// Ranks of a collective.
    Ranks,
}

impl Axis {
    /// A point in words: `64 KiB`, `16 queue pairs`.
    pub fn at(self, x: u64) -> String {
        match self {
            Self::Bytes => bytes(x),
            _ => format!("{x} {}", self.label()),
        }
    }

    fn label(self) -> &'static str {
        match self {
            Self::Bytes => "message",
            Self::QueuePairs => "queue pairs",
            Self::Ranks => "ranks",
        }
    }

    fn tick(self, x: u64) -> String {
        if self == Self::Bytes { bytes(x) } else { x.to_string() }
    }
}

/// The charts of a report, and the names of their benchmarks: one for each benchmark with an axis
/// and something measured.
pub fn charts(report: &Report) -> Vec<(&str, Chart<'_>)> {
    report.benchmarks.iter().filter_map(|it| Some((&*it.name, chart(it)?))).collect()
}

/// Draws a chart as SVG.
///
/// # Errors
/// When there are no two points, or the drawing library fails.
pub fn to_svg(chart: &Chart<'_>) -> Result<String, PlotError> {
    draw(std::slice::from_ref(chart), SIZE)
}

fn chart(benchmark: &BenchmarkResult) -> Option<Chart<'_>> {
    let axis = benchmark.axis?;
    let has = |figure: Figure| {
        let points = benchmark.candidates.iter().flat_map(|candidate| &candidate.points);
        points.flat_map(|point| &point.runs).any(|run| run.figures.contains_key(&figure))
    };
    let figure = [Figure::Gbits, Figure::BusGbytes, Figure::MicrosMedian, Figure::PerSecond]
        .into_iter()
        .find(|figure| has(*figure))?;
    let mut series = Vec::new();
    for (colour, candidate) in benchmark.candidates.iter().enumerate() {
        let is_curve = candidate.points.len() > 1;
        let shape = if is_curve { Shape::Dotted } else { Shape::Dashed };
        let line = |title: String, figure, shape| {
            let summary =
                |x: u64| Some((x as f64, benchmark.summary(&candidate.name, Some(x), figure)?));
            let points: Vec<_> = candidate.points.iter().filter_map(|it| summary(it.x?)).collect();
            let medians = points.iter().map(|(x, y)| (*x, y.median)).collect();
            let spread = points.iter().map(|(x, y)| (*x, y.low, y.high));
            let spread = spread.filter(|_| shape == Shape::Dotted).collect();
            let line = Series { spread, ..Series::new(title, colour, shape, medians) };
            (!line.points.is_empty()).then_some(line)
        };
        series.extend(line(candidate.title.clone(), figure, shape));
        // Of a level the median says enough.
        if figure == Figure::MicrosMedian && is_curve {
            let title = format!("{}, 99 %", candidate.title);
            series.extend(line(title, Figure::Micros99, Shape::Dashed));
        }
    }
    let tick =
        move |x: f64| if x.fract().abs() < 1e-9 { axis.tick(x as u64) } else { String::new() };
    // Sizes and times span decades; ranks and shares of one link do not.
    let x = chart::Axis {
        base: (axis != Axis::Ranks).then_some(2.0),
        most_labels: if axis == Axis::Ranks { 8 } else { 12 },
        label: Box::new(tick),
        ..chart::Axis::linear(axis.label())
    };
    let y = chart::Axis {
        base: (axis == Axis::Bytes).then_some(10.0),
        most_labels: 12,
        label: Box::new(move |y| figure.bare(y)),
        ..chart::Axis::linear(format!("{figure}, {}", figure.unit()))
    };
    Some(Chart { title: benchmark.title.clone(), x, y, series })
}

const SIZE: (u32, u32) = (1000, 520);

#[cfg(test)]
mod tests {
    use super::super::{CandidateResult, PointResult, Run, example};
    use super::*;

    fn curve(figures: &[(Figure, [f64; 3])]) -> BenchmarkResult {
        let at = |x: u64, place: usize| {
            let all = figures.iter().map(|(figure, values)| (*figure, values[place]));
            PointResult { x: Some(x), runs: vec![Run::good(1, all.collect())] }
        };
        let points = vec![at(8, 0), at(4096, 1), at(1 << 20, 2)];
        let candidate = CandidateResult { points, ..CandidateResult::named("roce", "roce write") };
        BenchmarkResult {
            axis: Some(Axis::Bytes),
            candidates: vec![candidate],
            ..BenchmarkResult::named("curve", "by size")
        }
    }

    #[test]
    fn a_row_with_an_axis_becomes_a_chart_with_its_lines() {
        let mut report = example::report();
        report.benchmarks.push(curve(&[(Figure::Gbits, [0.1, 10.0, 40.0])]));
        let charts = charts(&report);
        assert_eq!(charts.len(), 1, "a benchmark without axis has none");
        assert_eq!((charts[0].0, charts[0].1.series.len()), ("curve", 1));
        let svg = to_svg(&charts[0].1).unwrap();
        for word in ["by size", "roce write", "512 KiB", "payload, Gbit/s", "</svg>"] {
            assert!(svg.contains(word), "{word}");
        }
    }

    #[test]
    fn latency_has_its_percentile_beside_it_but_a_level_has_not() {
        let figures = [(Figure::MicrosMedian, [3.0; 3]), (Figure::Micros99, [9.0; 3])];
        let curve_of_both = curve(&figures);
        let chart = chart(&curve_of_both).unwrap();
        let lines: Vec<_> = chart.series.iter().map(|line| (&*line.name, line.shape)).collect();
        assert_eq!(lines, [("roce write", Shape::Dotted), ("roce write, 99 %", Shape::Dashed)]);
        let mut level = curve(&figures);
        level.candidates[0].points.truncate(1);
        assert_eq!(super::chart(&level).unwrap().series.len(), 1);
    }

    #[test]
    fn one_point_is_a_level_and_no_plot_by_itself() {
        let mut benchmark = curve(&[(Figure::Gbits, [0.1, 10.0, 40.0])]);
        let mut raw = CandidateResult::named("raw", "raw trains");
        raw.points = vec![benchmark.candidates[0].points[2].clone()];
        benchmark.candidates.push(raw);
        assert!(to_svg(&chart(&benchmark).unwrap()).unwrap().contains("raw trains"));
        benchmark.candidates.remove(0);
        assert!(to_svg(&chart(&benchmark).unwrap()).is_err());
    }

    #[test]
    fn what_failed_everywhere_leaves_no_line() {
        let mut benchmark = curve(&[(Figure::Gbits, [0.1, 10.0, 40.0])]);
        let mut broken = CandidateResult::named("bbr", "TCP, BBR");
        broken.points = vec![PointResult { x: Some(8), runs: vec![Run::failed(1, "no")] }];
        benchmark.candidates.push(broken);
        assert_eq!(chart(&benchmark).unwrap().series.len(), 1);
    }

    #[test]
    fn sizes_are_read_as_people_write_them() {
        assert_eq!(
            [8, 1000, 1024, 3 << 19, 64 << 20].map(bytes),
            ["8 B", "1000 B", "1 KiB", "1536 KiB", "64 MiB"]
        );
        assert_eq!(Axis::Ranks.at(3), "3 ranks");
    }
}
