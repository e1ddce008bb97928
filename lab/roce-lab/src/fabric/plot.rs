//! Plot of a fabric over time: rates, throughput, the longest queue, marks, pauses and drops.

use super::{FabricReport, FabricSample};
use crate::chart::{Axis, Chart, PlotError, Points, Series, Shape, draw};

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
    let line = |name: &str, colour, of: &dyn Fn(&FabricSample) -> f64| {
        let points = thinned.iter().map(|sample| (micros(sample), of(sample))).collect();
        Series::new(name, colour, Shape::Line, points)
    };
    let flows = samples.iter().map(|sample| sample.rates.len()).max().unwrap_or(0).min(MAX_LINES);
    let rates = (0..flows).map(|flow| line("", flow, &|sample| sample.rates[flow] / 1e9)).collect();
    let panel = |title: String, unit, series| {
        let (x, y) = (Axis::time(end), Axis::linear(unit));
        Chart { title, x, y, series }
    };
    let panels = [
        panel(format!("allowed rates of the first {flows} flows"), "Gbit/s", rates),
        panel("throughput of all hosts".to_owned(), "Gbit/s", vec![throughput(samples)]),
        panel(
            "longest queue".to_owned(),
            "KB",
            vec![line("", 0, &|sample| sample.longest_queue as f64 / 1e3)],
        ),
        panel(
            "since the start".to_owned(),
            "packets",
            vec![
                line("marks", 0, &|sample| sample.marked as f64),
                line("pauses (XOFF)", 1, &|sample| sample.xoff_sent as f64),
                line("drops", 4, &|sample| sample.dropped as f64),
            ],
        ),
    ];
    draw(&panels, SIZE)
}

fn throughput(samples: &[FabricSample]) -> Series {
    let step = samples.len().div_ceil(MAX_WINDOWS);
    let rate = |window: &[FabricSample]| {
        let (first, last) = (&window[0], &window[step]);
        let bits = (last.delivered_bytes - first.delivered_bytes) as f64 * 8.0;
        (micros(last), bits / (micros(last) - micros(first)) / 1e3)
    };
    let points: Points = samples.windows(step + 1).step_by(step).map(rate).collect();
    Series::new("", 2, Shape::Line, points)
}

fn micros(sample: &FabricSample) -> f64 {
    sample.at.as_nanos() as f64 / 1e3
}

const SIZE: (u32, u32) = (900, 1000);
/// Points of the throughput.
const MAX_WINDOWS: usize = 200;
/// Points of a line.
const MAX_POINTS: usize = 2000;
const MAX_LINES: usize = 16;
