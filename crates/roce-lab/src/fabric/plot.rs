//! Plot of a fabric over time: rates, throughput, the longest queue, marks, pauses and drops.

use plotters::prelude::*;
use roce_simnet::traffic::Sample;

use super::FabricReport;
use crate::plot::{COLOURS, FONT, INK, PlotError, failed};

/// Plots a run over time as SVG, in four panels: the rates that the first flows are allowed, the
/// throughput of all, the longest queue, and marks, pauses and drops since the start.
///
/// # Errors
/// [`PlotError`].
pub fn plot_fabric(report: &FabricReport) -> Result<String, PlotError> {
    let samples = &report.trace.samples;
    let end = samples.last().map_or(0.0, micros);
    if samples.len() < 2 || end <= 0.0 {
        return Err(PlotError::TooShort);
    }
    let thinned: Vec<_> = samples.iter().step_by(samples.len().div_ceil(MAX_POINTS)).collect();
    let line = |of: &dyn Fn(&Sample) -> f64| -> Vec<(f64, f64)> {
        thinned.iter().map(|sample| (micros(sample), of(sample))).collect()
    };
    let flows = samples.iter().map(|sample| sample.rates.len()).max().unwrap_or(0).min(MAX_LINES);
    let rates = (0..flows)
        .map(|flow| (String::new(), line(&|sample| sample.rates[flow] / 1e9), COLOURS[flow % 6]))
        .collect();
    let windows = samples.len().div_ceil(MAX_WINDOWS);
    let throughput: Vec<_> = samples
        .windows(windows + 1)
        .step_by(windows)
        .map(|window| {
            let (first, last) = (&window[0], &window[windows]);
            let bits = (last.delivered_bytes - first.delivered_bytes) as f64 * 8.0;
            (micros(last), bits / (micros(last) - micros(first)) / 1e3)
        })
        .collect();
    let throughput = vec![(String::new(), throughput, COLOURS[2])];
    let queue =
        vec![(String::new(), line(&|sample| sample.longest_queue as f64 / 1e3), COLOURS[0])];
    let counts = vec![
        ("marks".to_owned(), line(&|sample| sample.marked as f64), COLOURS[0]),
        ("pauses (XOFF)".to_owned(), line(&|sample| sample.xoff_sent as f64), COLOURS[1]),
        ("drops".to_owned(), line(&|sample| sample.dropped as f64), COLOURS[3]),
    ];
    let titles = [
        (format!("allowed rates of the first {flows} flows"), "Gbit/s"),
        ("throughput of all hosts".to_owned(), "Gbit/s"),
        ("longest queue".to_owned(), "KB"),
        ("since the start".to_owned(), "packets"),
    ];
    let panels: [Lines; 4] = [rates, throughput, queue, counts];
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&WHITE).map_err(failed)?;
        let areas = root.split_evenly((panels.len(), 1));
        for ((area, lines), (title, unit)) in areas.iter().zip(&panels).zip(&titles) {
            panel(area, lines, title, unit, end)?;
        }
        root.present().map_err(failed)?;
    }
    Ok(svg)
}

type Lines = Vec<(String, Vec<(f64, f64)>, RGBColor)>;
type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn panel(
    area: &Area<'_>,
    lines: &Lines,
    title: &str,
    unit: &str,
    end: f64,
) -> Result<(), PlotError> {
    let highest = lines.iter().flat_map(|line| &line.1).map(|point| point.1).fold(0.0, f64::max);
    let top = if highest > 0.0 { highest * 1.1 } else { 1.0 };
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .margin_right(32)
        .caption(title, (FONT, 15, &INK))
        .x_label_area_size(36)
        .y_label_area_size(72)
        .build_cartesian_2d(0.0..end, 0.0..top)
        .map_err(failed)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(RGBColor(225, 229, 234))
        .axis_style(INK)
        .label_style((FONT, 13, &INK))
        .y_labels(5)
        .x_label_formatter(&|micros| format!("{micros}"))
        .x_desc("time (µs)")
        .y_desc(unit)
        .axis_desc_style((FONT, 13, &INK))
        .draw()
        .map_err(failed)?;
    let mut named = false;
    for (name, points, colour) in lines {
        let style = colour.stroke_width(1);
        let series =
            chart.draw_series(LineSeries::new(points.iter().copied(), style)).map_err(failed)?;
        if !name.is_empty() {
            let key = move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style);
            series.label(name.as_str()).legend(key);
            named = true;
        }
    }
    if named {
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .label_font((FONT, 13, &INK))
            .background_style(WHITE)
            .draw()
            .map_err(failed)?;
    }
    Ok(())
}

fn micros(sample: &Sample) -> f64 {
    sample.at.as_nanos() as f64 / 1e3
}

const SIZE: (u32, u32) = (900, 1000);
/// Points of the throughput.
const MAX_WINDOWS: usize = 200;
/// Points of a line.
const MAX_POINTS: usize = 2000;
const MAX_LINES: usize = 16;
