//! Plot of a fabric over time: rates, throughput, the longest queue, marks, pauses and drops.

use plotters::style::RGBColor;

use super::{FabricReport, FabricSample};
use crate::plot::{COLOURS, Line, Panel, PlotError, draw};

/// Plots a run over time as SVG, in four panels: the rates that the first flows are allowed, the
/// throughput of all, the longest queue, and marks, pauses and drops since the start.
///
/// # Errors
/// [`PlotError`].
pub fn plot_fabric(report: &FabricReport) -> Result<String, PlotError> {
    let samples = &report.samples;
    let end = samples.last().map_or(0.0, micros);
    if samples.len() < 2 || end <= 0.0 {
        return Err(PlotError::TooShort);
    }
    let thinned: Vec<_> = samples.iter().step_by(samples.len().div_ceil(MAX_POINTS)).collect();
    let line = |of: &dyn Fn(&FabricSample) -> f64| -> Vec<(f64, f64)> {
        thinned.iter().map(|sample| (micros(sample), of(sample))).collect()
    };
    let flows = samples.iter().map(|sample| sample.rates.len()).max().unwrap_or(0).min(MAX_LINES);
    let rates: Lines = (0..flows)
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
    let named = |(name, points, colour)| Line { name, points, colour };
    let panels = [rates, throughput, queue, counts].into_iter().zip(titles).map(
        |(lines, (title, unit)): (Lines, _)| Panel {
            title,
            unit,
            lines: lines.into_iter().map(named).collect(),
        },
    );
    draw(&panels.collect::<Vec<_>>(), end, false, SIZE)
}

type Lines = Vec<(String, Vec<(f64, f64)>, RGBColor)>;

fn micros(sample: &FabricSample) -> f64 {
    sample.at.as_nanos() as f64 / 1e3
}

const SIZE: (u32, u32) = (900, 1000);
/// Points of the throughput.
const MAX_WINDOWS: usize = 200;
/// Points of a line.
const MAX_POINTS: usize = 2000;
const MAX_LINES: usize = 16;
