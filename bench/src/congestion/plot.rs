//! The outcomes as bars.

use plotters::coord::Shift;
use plotters::prelude::*;

use super::{Fabric, Outcome, Scenario};

type Drawn<'a> = Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>>;

/// A figure that is plotted: its name, and where it stands.
type Row = (&'static str, fn(&Outcome) -> f64);

const ROWS: [Row; 4] = [
    ("goodput, Mbit/s", |it| it.goodput),
    ("victim, Mbit/s", |it| it.victim),
    ("latency p99, ms", |it| it.latency_p99),
    ("queue p99, KB", |it| it.queue_p99),
];

const COLOURS: [(Fabric, RGBColor); 3] = [
    (Fabric::Lossy, RGBColor(0x2b, 0x6c, 0xb0)),
    (Fabric::Lossless, RGBColor(0xdd, 0x6b, 0x20)),
    (Fabric::Tbf, RGBColor(0x71, 0x80, 0x96)),
];

/// Returns an SVG with a chart for each figure (below each other) and number of senders (beside each
/// other).
///
/// # Errors
/// What the plotter refuses, in words.
pub fn plot(rows: &[(Scenario, Outcome)]) -> Result<String, String> {
    let mut senders: Vec<usize> = rows.iter().map(|(scenario, _)| scenario.senders).collect();
    senders.sort_unstable();
    senders.dedup();
    let mut text = String::new();
    let size = (430 * senders.len().max(1) as u32, 200 * ROWS.len() as u32 + 30);
    draw(&mut text, size, rows, &senders).map_err(|error| error.to_string())?;
    Ok(text)
}

fn draw<'a>(
    text: &'a mut String,
    size: (u32, u32),
    rows: &[(Scenario, Outcome)],
    senders: &[usize],
) -> Drawn<'a> {
    let root = SVGBackend::with_string(text, size).into_drawing_area();
    root.fill(&WHITE)?;
    let (legend, charts) = root.split_vertically(30);
    for (place, (fabric, colour)) in COLOURS.iter().enumerate() {
        let x = 60 + 110 * place as i32;
        legend.draw(&Rectangle::new([(x, 10), (x + 12, 22)], colour.filled()))?;
        legend.draw(&Text::new(fabric.name(), (x + 18, 10), ("sans-serif", 14)))?;
    }
    let areas = charts.split_evenly((ROWS.len(), senders.len()));
    for (place, area) in areas.iter().enumerate() {
        let (row, senders) = (ROWS[place / senders.len()], senders[place % senders.len()]);
        let of_these: Vec<_> = rows.iter().filter(|(it, _)| it.senders == senders).collect();
        chart(area, row, senders, &of_these)?;
    }
    root.present()
}

fn chart<'a>(
    area: &DrawingArea<SVGBackend<'a>, Shift>,
    (name, figure): Row,
    senders: usize,
    rows: &[&(Scenario, Outcome)],
) -> Drawn<'a> {
    let mut controls: Vec<&str> = Vec::new();
    for (scenario, _) in rows {
        if !controls.contains(&scenario.control.name) {
            controls.push(scenario.control.name);
        }
    }
    let top = rows.iter().map(|(_, outcome)| figure(outcome)).fold(1.0, f64::max) * 1.1;
    let mut chart = ChartBuilder::on(area)
        .caption(format!("{senders}:1 {name}"), ("sans-serif", 14))
        .margin_right(10)
        .x_label_area_size(24)
        .y_label_area_size(46)
        .build_cartesian_2d(0.0..controls.len().max(1) as f64, 0.0..top)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(0)
        .y_labels(5)
        .label_style(("sans-serif", 11))
        .draw()?;
    let width = 0.8 / COLOURS.len() as f64;
    for (place, control) in controls.iter().enumerate() {
        for (number, (fabric, colour)) in COLOURS.iter().enumerate() {
            let found =
                rows.iter().find(|(it, _)| it.control.name == *control && it.fabric == *fabric);
            let Some((_, outcome)) = found else { continue };
            let x = place as f64 + 0.1 + width * number as f64;
            let bar = [(x, 0.0), (x + width * 0.9, figure(outcome))];
            chart.draw_series([Rectangle::new(bar, colour.filled())])?;
        }
        let (x, y) = chart.backend_coord(&(place as f64 + 0.1, 0.0));
        let (left, above) = area.get_base_pixel();
        area.draw(&Text::new(*control, (x - left, y - above + 6), ("sans-serif", 10)))?;
    }
    Ok(())
}
