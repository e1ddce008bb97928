//! The outcomes as bars.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

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

/// Width of the plot, and heights of its legend and of a chart.
const WIDTH: u32 = 880;
const LEGEND_HEIGHT: u32 = 34;
const CHART_HEIGHT: u32 = 230;
/// Bars shorter than this share of the axis have their value written above them.
const SHORT: f64 = 0.02;

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
    let mut text = String::new();
    draw(&mut text, &Groups { rows, senders, controls }).map_err(|error| error.to_string())?;
    Ok(text)
}

/// What is plotted, in groups.
struct Groups<'a> {
    rows: &'a [(Scenario, Outcome)],
    controls: Vec<&'a str>,
    senders: Vec<usize>,
}

impl Groups<'_> {
    fn find(&self, control: &str, senders: usize, fabric: Fabric) -> Option<&Outcome> {
        let wanted = |it: &Scenario| {
            it.control.name == control && it.senders == senders && it.fabric == fabric
        };
        self.rows.iter().find(|(it, _)| wanted(it)).map(|(_, outcome)| outcome)
    }
}

fn draw<'a>(text: &'a mut String, groups: &Groups<'_>) -> Drawn<'a> {
    let size = (WIDTH, LEGEND_HEIGHT + CHART_HEIGHT * ROWS.len() as u32);
    let root = SVGBackend::with_string(text, size).into_drawing_area();
    root.fill(&WHITE)?;
    let (legend, charts) = root.split_vertically(LEGEND_HEIGHT);
    for (place, (fabric, colour)) in COLOURS.iter().enumerate() {
        let x = 60 + 110 * place as i32;
        legend.draw(&Rectangle::new([(x, 12), (x + 12, 24)], colour.filled()))?;
        legend.draw(&Text::new(fabric.name(), (x + 18, 11), ("sans-serif", 16)))?;
    }
    let senders: Vec<_> = groups.senders.iter().map(usize::to_string).collect();
    let note = format!("in each group: {} senders to one receiver", senders.join(", "));
    legend.draw(&Text::new(note, (60 + 110 * COLOURS.len() as i32, 11), ("sans-serif", 16)))?;
    for (area, row) in charts.split_evenly((ROWS.len(), 1)).iter().zip(ROWS) {
        chart(area, row, groups)?;
    }
    root.present()
}

fn chart<'a>(
    area: &DrawingArea<SVGBackend<'a>, Shift>,
    (name, figure): Row,
    groups: &Groups<'_>,
) -> Drawn<'a> {
    let Groups { rows, controls, senders } = groups;
    let top = rows.iter().map(|(_, outcome)| figure(outcome)).fold(1.0, f64::max) * 1.1;
    let mut chart = ChartBuilder::on(area)
        .caption(name, ("sans-serif", 17))
        .margin_right(10)
        .x_label_area_size(44)
        .y_label_area_size(56)
        .build_cartesian_2d(0.0..controls.len().max(1) as f64, 0.0..top)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .x_labels(0)
        .y_labels(5)
        .y_label_formatter(&|value| format!("{value:.0}"))
        .label_style(("sans-serif", 15))
        .draw()?;
    let centred = ("sans-serif", 15).into_font().color(&BLACK);
    let centred = centred.pos(Pos::new(HPos::Center, VPos::Top));
    let (left, above) = area.get_base_pixel();
    let share = 0.9 / senders.len().max(1) as f64;
    let width = share * 0.88 / COLOURS.len() as f64;
    let mut short = Vec::new();
    for (place, control) in controls.iter().enumerate() {
        let middle = |at: f64, down: i32| {
            let (x, y) = chart.backend_coord(&(at, 0.0));
            (x - left, y - above + down)
        };
        let place = place as f64;
        area.draw(&Text::new(*control, middle(place + 0.5, 23), centred.clone()))?;
        for (number, count) in senders.iter().enumerate() {
            let from = place + 0.05 + share * number as f64;
            let (at, count_text) = (middle(from + share * 0.44, 5), count.to_string());
            area.draw(&Text::new(count_text, at, centred.clone()))?;
            for (bar, (fabric, colour)) in COLOURS.iter().enumerate() {
                let Some(outcome) = groups.find(control, *count, *fabric) else { continue };
                let (x, value) = (from + width * bar as f64, figure(outcome));
                let corners = [(x, 0.0), (x + width * 0.9, value)];
                chart.plotting_area().draw(&Rectangle::new(corners, colour.filled()))?;
                if value < top * SHORT {
                    let (x, y) = chart.backend_coord(&(x + width * 0.45, value));
                    short.push(((x - left, y - above), value, colour));
                }
            }
        }
    }
    // In front of the bars beside them.
    for ((x, y), value, colour) in short {
        area.draw(&Rectangle::new([(x - 12, y - 18), (x + 12, y - 2)], WHITE.filled()))?;
        let style = centred.pos(Pos::new(HPos::Center, VPos::Bottom)).color(colour);
        area.draw(&Text::new(value.to_string(), (x, y - 3), style))?;
    }
    Ok(())
}
