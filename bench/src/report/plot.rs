//! Plots: a chart for each benchmark that has an axis.

use std::fmt::Display;
use std::io;

use plotters::coord::Shift;
use plotters::coord::ranged1d::ValueFormatter;
use plotters::prelude::*;
use serde::{Deserialize, Serialize};

use super::{BenchmarkResult, CandidateResult, Figure, Report, Summary};

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
            Self::QueuePairs => format!("{x} queue pairs"),
            Self::Ranks => format!("{x} ranks"),
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

/// A chart that can be drawn.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// The benchmark's name: what the file is called after.
    pub name: String,
    /// For people.
    pub title: String,
    /// Below.
    pub axis: Axis,
    /// On the left.
    pub figure: Figure,
    /// At least one.
    pub lines: Vec<Line>,
}

/// A line with its spread.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// For the legend.
    pub title: String,
    /// Lines of one candidate share a colour.
    pub colour: usize,
    /// Whether it shows something other than the chart's own figure.
    pub dashed: bool,
    /// By x; a single one is a level that does not depend on x.
    pub points: Vec<(u64, Summary)>,
}

/// The charts of a report: one for each benchmark with an axis and something measured.
pub fn charts(report: &Report) -> Vec<Chart> {
    report.benchmarks.iter().filter_map(chart).collect()
}

fn chart(benchmark: &BenchmarkResult) -> Option<Chart> {
    let axis = benchmark.axis?;
    let has = |figure: Figure| {
        let points = benchmark.candidates.iter().flat_map(|candidate| &candidate.points);
        points.flat_map(|point| &point.runs).any(|run| run.figures.contains_key(&figure))
    };
    let figure = [Figure::Gbits, Figure::BusGbytes, Figure::MicrosMedian, Figure::PerSecond]
        .into_iter()
        .find(|figure| has(*figure))?;
    let mut lines = Vec::new();
    for (colour, candidate) in benchmark.candidates.iter().enumerate() {
        let line = |title: String, figure, dashed| {
            let points = points_of(benchmark, candidate, figure);
            (!points.is_empty()).then_some(Line { title, colour, dashed, points })
        };
        lines.extend(line(candidate.title.clone(), figure, false));
        // Of a level the median says enough.
        if figure == Figure::MicrosMedian && candidate.points.len() > 1 {
            lines.extend(line(format!("{}, 99 %", candidate.title), Figure::Micros99, true));
        }
    }
    Some(Chart {
        name: benchmark.name.clone(),
        title: benchmark.title.clone(),
        axis,
        figure,
        lines,
    })
}

fn points_of(
    benchmark: &BenchmarkResult,
    of: &CandidateResult,
    figure: Figure,
) -> Vec<(u64, Summary)> {
    let point = |x: u64| Some((x, benchmark.summary(&of.name, Some(x), figure)?));
    of.points.iter().filter_map(|each| point(each.x?)).collect()
}

impl Chart {
    /// Draws it as SVG.
    ///
    /// # Errors
    /// When there is no line, or the drawing library fails.
    pub fn to_svg(&self) -> io::Result<String> {
        let mut svg = String::new();
        {
            let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
            self.draw(&root).map_err(io::Error::other)?;
            root.present().map_err(|why| io::Error::other(why.to_string()))?;
        }
        Ok(svg)
    }

    fn draw(&self, root: &Area<'_>) -> Result<(), String> {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let xs = || points().map(|(x, _)| *x as f64);
        let (left, right) = (xs().fold(f64::MAX, f64::min), xs().fold(0.0, f64::max));
        let low = points().map(|(_, y)| y.low).fold(f64::MAX, f64::min);
        let high = points().map(|(_, y)| y.high).fold(0.0, f64::max);
        if left >= right || high <= 0.0 {
            return Err(format!("{}: a plot needs at least two points", self.name));
        }
        let low = if low > 0.0 { low } else { high / 1e6 };
        root.fill(&WHITE).map_err(told)?;
        let mut builder = ChartBuilder::on(root);
        builder.margin(20).margin_top(44).margin_right(LEGEND).x_label_area_size(48);
        builder.y_label_area_size(76);
        // Sizes and times span decades; ranks and shares of one link do not.
        match self.axis {
            Axis::Bytes => self.draw_on(
                root,
                builder.build_cartesian_2d(
                    (left..right).log_scale().base(2.0),
                    (low / 1.5..high * 1.5).log_scale(),
                ),
            ),
            Axis::QueuePairs => self.draw_on(
                root,
                builder.build_cartesian_2d((left..right).log_scale().base(2.0), 0.0..high * 1.08),
            ),
            Axis::Ranks => {
                self.draw_on(root, builder.build_cartesian_2d(left..right, 0.0..high * 1.08))
            }
        }
    }

    fn draw_on<'a, X, Y>(
        &self,
        root: &Area<'a>,
        context: Result<ChartContext<'_, Backend<'a>, Cartesian2d<X, Y>>, DrawError>,
    ) -> Result<(), String>
    where
        X: Ranged<ValueType = f64> + ValueFormatter<f64>,
        Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        let mut context = context.map_err(told)?;
        let ranks = self.axis == Axis::Ranks;
        context
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(INK)
            .label_style((FONT, 14, &INK))
            .x_labels(if ranks { 8 } else { 12 })
            .y_labels(12)
            .x_label_formatter(&|x| {
                let whole = x.fract().abs() < 1e-9;
                if whole { self.axis.tick(*x as u64) } else { String::new() }
            })
            .y_label_formatter(&|y| self.figure.bare(*y))
            .x_desc(self.axis.label())
            .y_desc(format!("{}, {}", self.figure, self.figure.unit()))
            .axis_desc_style((FONT, 15, &INK))
            .draw()
            .map_err(told)?;
        let x_range = context.x_range();
        for (place, line) in self.lines.iter().enumerate() {
            let colour = COLOURS[line.colour % COLOURS.len()];
            let is_level = line.points.len() == 1;
            let mut path: Vec<(f64, f64)> =
                line.points.iter().map(|(x, y)| (*x as f64, y.median)).collect();
            if let (true, [(_, y)]) = (is_level, path.as_slice()) {
                path = vec![(x_range.start, *y), (x_range.end, *y)];
            }
            if line.dashed || is_level {
                let dashes = DashedLineSeries::new(path, 5, 4, colour.stroke_width(1));
                context.draw_series(dashes).map_err(told)?;
            } else {
                let whole = LineSeries::new(path, colour.stroke_width(2)).point_size(3);
                context.draw_series(whole).map_err(told)?;
                let spread = line.points.iter().map(|(x, y)| {
                    PathElement::new([(*x as f64, y.low), (*x as f64, y.high)], colour.mix(0.5))
                });
                context.draw_series(spread).map_err(told)?;
            }
            legend(root, place, line, is_level)?;
        }
        let style = TextStyle::from((FONT, 17).into_font()).color(&INK);
        root.draw(&Text::new(self.title.clone(), (76, 14), style)).map_err(told)
    }
}

fn legend(root: &Area<'_>, place: usize, line: &Line, is_level: bool) -> Result<(), String> {
    let colour = COLOURS[line.colour % COLOURS.len()];
    let (left, y) = (SIZE.0 as i32 - LEGEND as i32 + 14, 56 + 22 * place as i32);
    let stroke = colour.stroke_width(if line.dashed || is_level { 1 } else { 3 });
    let length =
        if line.dashed || is_level { [0, 6, 10, 16, 20, 24] } else { [0, 24, 24, 24, 24, 24] };
    for part in length.chunks(2) {
        let ends = [(left + part[0], y), (left + part[1], y)];
        root.draw(&PathElement::new(ends, stroke)).map_err(told)?;
    }
    let style = TextStyle::from((FONT, 14).into_font()).color(&INK);
    root.draw(&Text::new(line.title.clone(), (left + 32, y - 7), style)).map_err(told)
}

type Backend<'a> = SVGBackend<'a>;
type Area<'a> = DrawingArea<Backend<'a>, Shift>;
type DrawError = DrawingAreaErrorKind<<Backend<'static> as DrawingBackend>::ErrorType>;

fn told(why: impl Display) -> String {
    why.to_string()
}

fn bytes(x: u64) -> String {
    match x {
        x if x >= 1 << 20 && x % (1 << 20) == 0 => format!("{} MiB", x >> 20),
        x if x >= 1 << 10 && x % (1 << 10) == 0 => format!("{} KiB", x >> 10),
        x => format!("{x} B"),
    }
}

const SIZE: (u32, u32) = (1000, 520);
/// Width of the legend on the right.
const LEGEND: u32 = 250;
const FONT: &str = "sans-serif";
const INK: RGBColor = RGBColor(52, 60, 72);
const GRID: RGBColor = RGBColor(225, 229, 234);
/// Colours that remain distinct for colour-blind readers.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 92, 175),
    RGBColor(213, 94, 0),
    RGBColor(0, 140, 105),
    RGBColor(110, 110, 110),
    RGBColor(180, 70, 150),
    RGBColor(160, 120, 0),
    RGBColor(70, 160, 220),
];

#[cfg(test)]
mod tests {
    use super::super::{PointResult, Run, example};
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
        assert_eq!((charts[0].figure, charts[0].lines.len()), (Figure::Gbits, 1));
        let svg = charts[0].to_svg().unwrap();
        for word in ["by size", "roce write", "512 KiB", "payload, Gbit/s", "</svg>"] {
            assert!(svg.contains(word), "{word}");
        }
    }

    #[test]
    fn latency_has_its_percentile_beside_it_but_a_level_has_not() {
        let figures = [(Figure::MicrosMedian, [3.0; 3]), (Figure::Micros99, [9.0; 3])];
        let chart = chart(&curve(&figures)).unwrap();
        let lines: Vec<_> = chart.lines.iter().map(|line| (&*line.title, line.dashed)).collect();
        assert_eq!(lines, [("roce write", false), ("roce write, 99 %", true)]);
        let mut level = curve(&figures);
        level.candidates[0].points.truncate(1);
        assert_eq!(super::chart(&level).unwrap().lines.len(), 1);
    }

    #[test]
    fn one_point_is_a_level_and_no_plot_by_itself() {
        let mut benchmark = curve(&[(Figure::Gbits, [0.1, 10.0, 40.0])]);
        let mut raw = CandidateResult::named("raw", "raw trains");
        raw.points = vec![benchmark.candidates[0].points[2].clone()];
        benchmark.candidates.push(raw);
        assert!(chart(&benchmark).unwrap().to_svg().unwrap().contains("raw trains"));
        benchmark.candidates.remove(0);
        assert!(chart(&benchmark).unwrap().to_svg().is_err());
    }

    #[test]
    fn what_failed_everywhere_leaves_no_line() {
        let mut benchmark = curve(&[(Figure::Gbits, [0.1, 10.0, 40.0])]);
        let mut broken = CandidateResult::named("bbr", "TCP, BBR");
        broken.points = vec![PointResult { x: Some(8), runs: vec![Run::failed(1, "no")] }];
        benchmark.candidates.push(broken);
        assert_eq!(chart(&benchmark).unwrap().lines.len(), 1);
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
