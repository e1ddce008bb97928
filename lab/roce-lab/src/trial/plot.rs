//! Plots of trials: as SVG, and as lines of text.

use roce_transport::Instant;

use super::{TrialRun, TrialSample};
use crate::chart::{Axis, Chart, PlotError, Points, Series, Shape, draw};
use crate::lesson::{LessonError, PlotData, Quantity};

/// A plot of a section.
#[derive(Clone, Debug)]
pub struct TrialPlot {
    /// Title.
    pub title: String,
    /// The plot as SVG.
    pub svg: String,
    /// The plot as lines of text.
    pub lines: Vec<String>,
}

/// Width of a plot in pixels, and height of a panel.
const SIZE: (u32, u32) = (860, 250);
/// Points of a line.
const MAX_POINTS: usize = 700;
/// Columns of a line of text.
const COLUMNS: usize = 64;
const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Intervals of a throughput.
const INTERVALS: usize = 160;

/// Plots a quantity of some trials.
pub(crate) fn plot(
    section: usize,
    data: &PlotData,
    trials: &[&TrialRun],
) -> Result<TrialPlot, LessonError> {
    let last = |trial: &&TrialRun| trial.samples.last().map_or(0, |it| it.at.as_nanos());
    let end = data.until.map(|until| until.duration().as_nanos() as u64);
    let end = end.or_else(|| trials.iter().map(last).max()).unwrap_or(0) as f64 / 1e3;
    let unknown =
        |name: &str| LessonError::Unknown { section, what: "flow or port", name: name.to_owned() };
    let (unit, size) = match data.of {
        Quantity::Rate | Quantity::Throughput => ("Gbit/s", 1e9),
        Quantity::Queue => ("KB", 1e3),
    };
    let is_queue = data.of == Quantity::Queue;
    let mut panels: Vec<Chart<'_>> = Vec::new();
    for (number, trial) in trials.iter().enumerate() {
        let mut lines = Vec::new();
        let mut add = |name: &str, colour, mut points: Points| {
            points.retain(|point| point.0 <= end);
            lines.push(Series::new(name, colour, Shape::Line, points));
        };
        if is_queue {
            let of: Box<dyn Fn(&TrialSample) -> f64> = match &data.names[..] {
                [] => Box::new(|it| it.queues.iter().copied().max().unwrap_or(0) as f64),
                [from, to] => {
                    let is_it = |port: &[String; 2]| port[0] == *from && port[1] == *to;
                    let place = trial.ports.iter().position(is_it).ok_or_else(|| unknown(from))?;
                    Box::new(move |it| it.queues[place] as f64)
                }
                [name, ..] => return Err(unknown(name)),
            };
            let name = if trials.len() > 1 { &*trial.name } else { "" };
            add(name, number, points(trial, size, of));
        } else {
            let is_shown = |name: &String| data.names.is_empty() || data.names.contains(name);
            let shown = trial.flows.iter().enumerate().filter(|(_, name)| is_shown(name));
            for (colour, (flow, name)) in shown.enumerate() {
                let points = match data.of {
                    Quantity::Rate => points(trial, size, |it| it.rates[flow]),
                    _ => throughput(trial, flow, end),
                };
                add(name, colour, points);
            }
        }
        match panels.last_mut().filter(|_| is_queue) {
            Some(panel) => panel.series.append(&mut lines),
            None => {
                let title = match trials.len() {
                    2.. if !is_queue => format!("{}: {}", data.title, trial.name),
                    _ => data.title.clone(),
                };
                let (x, y) = (Axis::time(end), Axis::linear(unit));
                panels.push(Chart { title, x, y, series: lines });
            }
        }
    }
    let highest = panels.iter().map(Chart::highest).fold(0.0, f64::max);
    if highest > 0.0 {
        panels.iter_mut().for_each(|panel| panel.y.range = Some(0.0..highest * 1.1));
    }
    let size = (SIZE.0, SIZE.1 * panels.len() as u32);
    let refused = |why: PlotError| LessonError::Refused { section, why: why.to_string() };
    let svg = draw(&panels, size).map_err(refused)?;
    let text = |panel| text(panel, highest, end, panels.len() > 1);
    let lines = panels.iter().flat_map(text).collect();
    Ok(TrialPlot { title: data.title.clone(), svg, lines })
}

fn points(trial: &TrialRun, size: f64, of: impl Fn(&TrialSample) -> f64) -> Points {
    // The highest of the samples that share a point.
    let step = trial.samples.len().div_ceil(MAX_POINTS).max(1);
    let point = |chunk: &[TrialSample]| {
        let highest = chunk.iter().map(&of).fold(0.0, f64::max);
        (micros(chunk[0].at), highest / size)
    };
    trial.samples.chunks(step).map(point).collect()
}

/// Returns what arrives in Gbit/s, over intervals.
fn throughput(trial: &TrialRun, flow: usize, end: f64) -> Points {
    let interval = end / INTERVALS as f64;
    let mut points = vec![(0.0, 0.0)];
    let mut from = (0.0, 0);
    for sample in &trial.samples {
        let at = micros(sample.at);
        if at - from.0 >= interval {
            let bits = (sample.arrived[flow] - from.1) as f64 * 8.0;
            points.push((at, bits / (at - from.0) / 1e3));
            from = (at, sample.arrived[flow]);
        }
    }
    points
}

fn micros(at: Instant) -> f64 {
    at.as_nanos() as f64 / 1e3
}

/// Returns a line of bars for each line of the panel, all of one height.
fn text(panel: &Chart<'_>, highest: f64, end: f64, is_titled: bool) -> Vec<String> {
    let width = panel.series.iter().map(|line| line.name.chars().count()).max().unwrap_or(0);
    let mut lines = Vec::new();
    if is_titled {
        lines.push(panel.title.clone());
    }
    for Series { name, points, .. } in &panel.series {
        let mut bars = [0.0_f64; COLUMNS];
        let mut seen = [false; COLUMNS];
        for (at, value) in points {
            let column = (at / end * COLUMNS as f64) as usize;
            if column < COLUMNS {
                bars[column] = bars[column].max(*value);
                seen[column] = true;
            }
        }
        let last = seen.iter().rposition(|it| *it).unwrap_or(0);
        for column in 1..=last {
            if !seen[column] {
                bars[column] = bars[column - 1];
            }
        }
        let bar = |value: &f64| match *value {
            0.0 => BARS[0],
            value => BARS[((value / highest * 8.0).ceil() as usize).clamp(1, 8)],
        };
        let bars: String = bars.iter().map(bar).collect();
        lines.push(format!("{name:width$} │{bars}│"));
    }
    let axis = format!("0 to {}; full height {highest:.1} {}", span(end), panel.y.name);
    lines.push(format!("{:width$}  {axis}", ""));
    lines
}

fn span(micros: f64) -> String {
    if micros < 1e3 { format!("{micros:.0} µs") } else { format!("{:.2} ms", micros / 1e3) }
}
