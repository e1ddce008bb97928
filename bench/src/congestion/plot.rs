//! The outcomes as bars.

use roce_lab::chart::{Axis, Chart, Series, Shape, draw};

use super::{Fabric, Outcome, Scenario};

/// A figure that is plotted: its name, and where it stands.
type Row = (&'static str, fn(&Outcome) -> f64);

const ROWS: [Row; 4] = [
    ("goodput, Mbit/s", |it| it.goodput),
    ("victim, Mbit/s", |it| it.victim),
    ("latency p99, ms", |it| it.latency_p99),
    ("queue p99, KB", |it| it.queue_p99),
];

/// Fabrics, and the numbers of their colours.
const COLOURS: [(Fabric, usize); 3] = [(Fabric::Lossy, 0), (Fabric::Lossless, 1), (Fabric::Tbf, 3)];

const SIZE: (u32, u32) = (900, 960);
/// Width of a bar; that of the bars of one number of senders, with the gap behind them, is 1.
const WIDTH: f64 = 0.26;

/// Returns an SVG with a chart for each figure, below each other. A chart has a group of bars for each
/// congestion control, in it one for each number of senders, and in that a bar for each fabric.
///
/// # Errors
/// What the plotter refuses, in words.
pub fn plot(rows: &[(Scenario, Outcome)]) -> Result<String, String> {
    let mut senders: Vec<usize> = rows.iter().map(|(scenario, _)| scenario.senders).collect();
    senders.sort_unstable();
    senders.dedup();
    let mut controls: Vec<&str> = Vec::new();
    for (scenario, _) in rows {
        if !controls.contains(&scenario.control.name) {
            controls.push(scenario.control.name);
        }
    }
    // With a gap as wide as half of the bars between two controls.
    let group = senders.len() as f64 + 0.5;
    let place = |scenario: &Scenario| {
        let control = controls.iter().position(|it| *it == scenario.control.name)?;
        Some(control as f64 * group + senders.iter().position(|it| *it == scenario.senders)? as f64)
    };
    let mut texts = Vec::new();
    for (control, from) in controls.iter().zip((0..).map(|it| f64::from(it) * group)) {
        texts.extend(
            senders.iter().zip(0..).map(|(it, at)| (from + f64::from(at), 0, it.to_string())),
        );
        texts.push((from + (senders.len() as f64 - 1.0) / 2.0, 1, (*control).to_owned()));
    }
    let chart = |(title, figure): Row| {
        let bars = |(bar, (fabric, colour)): (usize, (Fabric, usize))| {
            let of_fabric = rows.iter().filter(|(scenario, _)| scenario.fabric == fabric);
            let offset = (bar as f64 - 1.0) * WIDTH * 1.1;
            let point = |(it, outcome): &_| Some((place(it)? + offset, figure(outcome)));
            // One legend says it for all charts.
            let name = if title == ROWS[0].0 { fabric.name() } else { "" };
            Series::new(name, colour, Shape::Bars(WIDTH), of_fabric.filter_map(point).collect())
        };
        Chart {
            title: title.to_owned(),
            x: Axis {
                range: Some(-0.6..controls.len().max(1) as f64 * group - 0.9),
                texts: texts.clone(),
                ..Axis::linear("")
            },
            y: Axis::linear(""),
            series: COLOURS.into_iter().enumerate().map(bars).collect(),
        }
    };
    let mut charts = ROWS.map(chart);
    let senders: Vec<_> = senders.iter().map(usize::to_string).collect();
    charts[0].title += &format!(" ({} senders to one receiver)", senders.join(", "));
    draw(&charts, SIZE).map_err(|why| why.to_string())
}
