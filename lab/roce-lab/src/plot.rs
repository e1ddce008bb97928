//! What the plots have in common.

use plotters::prelude::*;
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
    /// The drawing library failed.
    #[error("the plot cannot be drawn: {0}")]
    Drawing(String),
}

pub(crate) const FONT: &str = "sans-serif";
pub(crate) const INK: RGBColor = RGBColor(52, 60, 72);
pub(crate) const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(160, 70, 150),
    RGBColor(140, 110, 0),
    RGBColor(90, 90, 90),
];

/// Returns the error for one of the drawing library.
pub(crate) fn failed(why: impl std::fmt::Display) -> PlotError {
    PlotError::Drawing(why.to_string())
}

/// A plot over time.
#[derive(Clone, Debug)]
pub(crate) struct Panel {
    pub(crate) title: String,
    /// Unit of the values.
    pub(crate) unit: &'static str,
    pub(crate) lines: Vec<Line>,
}

impl Panel {
    /// Returns the largest value.
    pub(crate) fn highest(&self) -> f64 {
        let values = self.lines.iter().flat_map(|line| &line.points).map(|point| point.1);
        values.fold(0.0, f64::max)
    }
}

/// A line of a [`Panel`].
#[derive(Clone, Debug)]
pub(crate) struct Line {
    /// Name in the legend; empty for none.
    pub(crate) name: String,
    /// Time in µs, and value.
    pub(crate) points: Vec<(f64, f64)>,
    pub(crate) colour: RGBColor,
}

/// Draws panels below each other as SVG, from 0 to `end` µs. All have the scale of the largest
/// value if `has_one_scale`.
pub(crate) fn draw(
    panels: &[Panel],
    end: f64,
    has_one_scale: bool,
    size: (u32, u32),
) -> Result<String, PlotError> {
    let highest = panels.iter().map(Panel::highest).fold(0.0, f64::max);
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        root.fill(&WHITE).map_err(failed)?;
        let areas = root.split_evenly((panels.len(), 1));
        for (area, panel) in areas.iter().zip(panels) {
            let highest = if has_one_scale { highest } else { panel.highest() };
            draw_panel(area, panel, highest, end)?;
        }
        root.present().map_err(failed)?;
    }
    Ok(svg)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn draw_panel(area: &Area<'_>, panel: &Panel, highest: f64, end: f64) -> Result<(), PlotError> {
    let Panel { title, unit, lines } = panel;
    let top = if highest > 0.0 { highest * 1.1 } else { 1.0 };
    let has_legend = lines.len() > 1 && lines.iter().all(|line| !line.name.is_empty());
    let (in_unit, time) = if end > MAX_MICROS { (1e3, "time (ms)") } else { (1.0, "time (µs)") };
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .margin_right(32)
        .caption(title, (FONT, 15, &INK))
        .x_label_area_size(36)
        .y_label_area_size(72)
        .build_cartesian_2d(0.0..end / in_unit, 0.0..top)
        .map_err(failed)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(RGBColor(225, 229, 234))
        .axis_style(INK)
        .label_style((FONT, 13, &INK))
        .y_labels(5)
        .x_label_formatter(&|time| format!("{time}"))
        .x_desc(time)
        .y_desc(*unit)
        .axis_desc_style((FONT, 13, &INK))
        .draw()
        .map_err(failed)?;
    let font = (FONT, 13).into_font().color(&INK);
    // In the line of the title: beside the panel it would take the time axis of the others' length.
    let left = area.dim_in_pixel().0 as i32 - 32 - (LEGEND_WIDTH * lines.len()) as i32;
    for (number, Line { name, points, colour }) in lines.iter().enumerate() {
        let style = colour.stroke_width(if lines.len() < 3 { 2 } else { 1 });
        let points = points.iter().map(|(at, value)| (at / in_unit, *value));
        chart.draw_series(LineSeries::new(points, style)).map_err(failed)?;
        if has_legend {
            let (left, y) = (left + (LEGEND_WIDTH * number) as i32, 20);
            let key = PathElement::new([(left, y), (left + 18, y)], colour.stroke_width(2));
            area.draw(&key).map_err(failed)?;
            let text = Text::new(name.as_str(), (left + 24, y - 7), font.clone());
            area.draw(&text).map_err(failed)?;
        }
    }
    Ok(())
}

/// Width of a line's name in the legend, in pixels.
const LEGEND_WIDTH: usize = 112;
/// Longest time that is given in µs.
const MAX_MICROS: f64 = 3000.0;
