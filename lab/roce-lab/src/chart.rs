//! Charts as SVG: lines, levels and bars over linear and logarithmic axes.

use std::{fmt, ops::Range};

use plotters::coord::combinators::LogCoord;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use thiserror::Error;

/// Error of a plot.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PlotError {
    /// Fewer than two sizes.
    #[error("a plot needs at least two sizes; give more with --bytes")]
    TooFew,
    /// Fewer than two samples.
    #[error("a plot over time needs at least two samples; give a longer --limit or more --bytes")]
    TooShort,
    /// No axis from one point to another.
    #[error("a plot needs at least two points")]
    OnePoint,
    /// The drawing library failed.
    #[error("the plot cannot be drawn: {0}")]
    Drawing(String),
}

impl<E: std::error::Error + Send + Sync> From<DrawingAreaErrorKind<E>> for PlotError {
    fn from(why: DrawingAreaErrorKind<E>) -> Self {
        Self::Drawing(why.to_string())
    }
}

/// Axes and what is drawn over them.
#[derive(Debug)]
pub struct Chart<'a> {
    /// Above the chart.
    pub title: String,
    /// The axis below.
    pub x: Axis<'a>,
    /// The axis on the left.
    pub y: Axis<'a>,
    /// In the order of the legend.
    pub series: Vec<Series>,
}

impl Chart<'_> {
    /// Returns the largest value.
    pub fn highest(&self) -> f64 {
        extent(self.series.iter().flat_map(Series::values)).end
    }
}

/// An axis.
pub struct Axis<'a> {
    /// What it shows, and the unit.
    pub name: String,
    /// From where to where; without it, as far as the series reach.
    pub range: Option<Range<f64>>,
    /// Base of a logarithmic axis.
    pub base: Option<f64>,
    /// The most labels that it has.
    pub most_labels: usize,
    /// Writes a label.
    pub label: Box<dyn Fn(f64) -> String + 'a>,
    /// Texts in place of labels: where on the axis, and in which row below it.
    pub texts: Vec<(f64, i32, String)>,
}

impl Axis<'_> {
    /// Returns a linear axis whose labels are plain numbers.
    pub fn linear(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            range: None,
            base: None,
            most_labels: 5,
            label: Box::new(plain),
            texts: Vec::new(),
        }
    }

    /// Returns an axis of the time from 0 to `end` µs.
    pub fn time(end: f64) -> Self {
        let (in_unit, name) =
            if end > MAX_MICROS { (1e3, "time (ms)") } else { (1.0, "time (µs)") };
        let label = Box::new(move |micros| plain(micros / in_unit));
        Self { range: Some(0.0..end), most_labels: 11, label, ..Self::linear(name) }
    }
}

impl fmt::Debug for Axis<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Axis").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Points that belong together.
#[derive(Clone, Debug)]
pub struct Series {
    /// Name in the legend; empty for none.
    pub name: String,
    /// Number of the colour.
    pub colour: usize,
    /// How the points are drawn.
    pub shape: Shape,
    /// The points: x and y.
    pub points: Points,
    /// Spread of values: x, and y from and to.
    pub spread: Vec<(f64, f64, f64)>,
}

impl Series {
    /// Returns a series without spread.
    pub fn new(name: impl Into<String>, colour: usize, shape: Shape, points: Points) -> Self {
        Self { name: name.into(), colour, shape, points, spread: Vec::new() }
    }

    fn values(&self) -> impl Iterator<Item = f64> {
        let spread = self.spread.iter().flat_map(|(_, low, high)| [*low, *high]);
        self.points.iter().map(|point| point.1).chain(spread)
    }
}

/// Points of a [`Series`]: x and y.
pub type Points = Vec<(f64, f64)>;

/// How a [`Series`] is drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// A line.
    Line,
    /// A line on which the points are seen.
    Dotted,
    /// A thin, dashed line; with one point, a level over the whole axis.
    Dashed,
    /// Bars of a width around the points.
    Bars(f64),
}

/// Draws charts of equal height below each other.
///
/// # Errors
/// An axis without length, or the drawing library fails.
pub fn draw(charts: &[Chart<'_>], size: (u32, u32)) -> Result<String, PlotError> {
    let names = charts.iter().flat_map(|chart| &chart.series).map(|it| it.name.chars().count());
    // All charts have the same length, also those without a legend.
    let legend = names.max().filter(|longest| *longest > 0).map_or(24, |it| 56 + 7 * it as i32);
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        root.fill(&WHITE)?;
        for (area, chart) in root.split_evenly((charts.len(), 1)).iter().zip(charts) {
            draw_chart(area, chart, legend)?;
        }
        root.present()?;
    }
    Ok(svg)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn draw_chart(area: &Area<'_>, chart: &Chart<'_>, legend: i32) -> Result<(), PlotError> {
    let Chart { title, x, y, series } = chart;
    let xs = extent(series.iter().flat_map(|it| &it.points).map(|point| point.0));
    let Range { start: low, end: high } = extent(series.iter().flat_map(Series::values));
    let ys = match y.base {
        Some(_) if low > 0.0 => low / 1.5..high * 1.5,
        Some(_) => high / 1e6..high * 1.5,
        None => 0.0..if high > 0.0 { high * 1.1 } else { 1.0 },
    };
    let (x_scale, y_scale) = (Scale::new(x, xs)?, Scale::new(y, ys)?);
    let Range { start: from, end: to } = x_scale.range();
    let Range { start: bottom, end: top } = y_scale.range();
    let mut context = ChartBuilder::on(area)
        .margin(12)
        .margin_right(legend)
        .caption(title, (FONT, 16, &INK))
        .x_label_area_size(44)
        .y_label_area_size(72)
        .build_cartesian_2d(x_scale, y_scale)?;
    context
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(INK)
        .label_style((FONT, 14, &INK))
        .x_labels(if x.texts.is_empty() { x.most_labels } else { 0 })
        .y_labels(y.most_labels)
        .x_label_formatter(&|at| (x.label)(*at))
        .y_label_formatter(&|at| (y.label)(*at))
        .x_desc(&x.name)
        .y_desc(&y.name)
        .axis_desc_style((FONT, 14, &INK))
        .draw()?;
    let mut shorts = Vec::new();
    for Series { colour, shape, points, spread, .. } in series {
        let colour = COLOURS[colour % COLOURS.len()];
        match *shape {
            Shape::Line | Shape::Dotted => {
                let (width, dots) = match shape {
                    Shape::Dotted => (2, 3),
                    _ if series.len() > 2 => (1, 0),
                    _ => (2, 0),
                };
                let line = LineSeries::new(points.clone(), colour.stroke_width(width));
                context.draw_series(line.point_size(dots))?
            }
            Shape::Dashed => {
                let points = match points[..] {
                    [(_, y)] => vec![(from, y), (to, y)],
                    _ => points.clone(),
                };
                context.draw_series(DashedLineSeries::new(points, 5, 4, colour.stroke_width(1)))?
            }
            Shape::Bars(width) => {
                let short = points.iter().filter(|it| it.1 < (top - bottom) * SHORT);
                shorts.extend(short.map(|point| (*point, colour)));
                let bar = |(x, y): &_| {
                    let corners = [(x - width / 2.0, bottom), (x + width / 2.0, *y)];
                    Rectangle::new(corners, colour.filled())
                };
                context.draw_series(points.iter().map(bar))?
            }
        };
        let span =
            |(x, low, high): &_| PathElement::new([(*x, *low), (*x, *high)], colour.mix(0.5));
        context.draw_series(spread.iter().map(span))?;
    }
    for (row, it) in (0..).zip(series.iter().filter(|it| !it.name.is_empty())) {
        draw_name(area, it, legend, 50 + 22 * row)?;
    }
    let base = area.get_base_pixel();
    let pixel = |point: (f64, f64), down: i32| {
        let (x, y) = context.backend_coord(&point);
        (x - base.0, y - base.1 + down)
    };
    let centred = |vertical| text_style().pos(Pos::new(HPos::Center, vertical));
    for (at, row, text) in &x.texts {
        let text = Text::new(&**text, pixel((*at, bottom), 5 + 18 * row), centred(VPos::Top));
        area.draw(&text)?;
    }
    // In front of the bars beside them.
    for (point, colour) in shorts {
        let (x, y) = pixel(point, -2);
        area.draw(&Rectangle::new([(x - 12, y - 16), (x + 12, y)], WHITE.filled()))?;
        let style = centred(VPos::Bottom).color(&colour);
        area.draw(&Text::new(plain(point.1), (x, y - 1), style))?;
    }
    Ok(())
}

/// Draws a series' name and what it looks like into the legend on the right.
fn draw_name(area: &Area<'_>, series: &Series, legend: i32, y: i32) -> Result<(), PlotError> {
    let (parts, width): (&[i32], _) = match series.shape {
        Shape::Line | Shape::Dotted => (&[0, 24], 3),
        Shape::Dashed => (&[0, 6, 10, 16, 20, 24], 1),
        Shape::Bars(_) => (&[6, 18], 12),
    };
    let stroke = COLOURS[series.colour % COLOURS.len()].stroke_width(width);
    let x = area.dim_in_pixel().0 as i32 - legend + 14;
    for part in parts.chunks(2) {
        area.draw(&PathElement::new([(x + part[0], y), (x + part[1], y)], stroke))?;
    }
    area.draw(&Text::new(&*series.name, (x + 32, y - 7), text_style()))?;
    Ok(())
}

fn text_style() -> TextStyle<'static> {
    (FONT, 14).into_font().color(&INK)
}

/// Returns the least and the largest of some values.
fn extent(values: impl Iterator<Item = f64>) -> Range<f64> {
    values.fold(f64::MAX..0.0, |it, value| it.start.min(value)..it.end.max(value))
}

/// Writes a number without the digits that only rounding has made.
pub fn plain(value: f64) -> String {
    ((value * 1e6).round() / 1e6).to_string()
}

/// Writes a number of bytes: as whole KiB or MiB where it is that, else as bytes.
pub fn bytes(count: u64) -> String {
    match count {
        _ if count >= 1 << 20 && count.is_multiple_of(1 << 20) => format!("{} MiB", count >> 20),
        _ if count >= 1 << 10 && count.is_multiple_of(1 << 10) => format!("{} KiB", count >> 10),
        _ => format!("{count} B"),
    }
}

/// Where values are on an axis: from where to where it goes, and the base of its logarithm.
struct Scale(Range<f64>, Option<f64>);

impl Scale {
    fn new(axis: &Axis<'_>, reach: Range<f64>) -> Result<Self, PlotError> {
        let range = axis.range.clone().unwrap_or(reach);
        if range.start < range.end { Ok(Self(range, axis.base)) } else { Err(PlotError::OnePoint) }
    }
}

impl Ranged for Scale {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let on = |value: f64| if self.1.is_some() { value.ln() } else { value };
        RangedCoordf64::from(on(self.0.start)..on(self.0.end)).map(&on(*value), limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        let range = self.0.clone();
        match self.1 {
            Some(base) => LogCoord::from(range.log_scale().base(base)).key_points(hint),
            None => RangedCoordf64::from(range).key_points(hint),
        }
    }

    fn range(&self) -> Range<f64> {
        self.0.clone()
    }
}

impl ValueFormatter<f64> for Scale {}

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
/// Bars shorter than this share of the axis have their value written above them.
const SHORT: f64 = 0.02;
/// Longest time that is given in µs.
const MAX_MICROS: f64 = 3000.0;
