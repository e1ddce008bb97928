//! Plot of completion times beside the α-β model.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::ScaleResult;
use crate::plot::{COLOURS, FONT, INK, PlotError, failed};

/// Plots completion time over message size as SVG: a line for each number of ranks, and a dashed
/// one of the model. Both axes are logarithmic.
///
/// # Errors
/// [`PlotError`].
pub fn plot(results: &[ScaleResult]) -> Result<String, PlotError> {
    let mut ranks: Vec<usize> = results.iter().map(|result| result.scale.ranks).collect();
    ranks.sort_unstable();
    ranks.dedup();
    let sizes = || results.iter().map(|result| result.scale.bytes.max(1) as f64);
    let times = || results.iter().flat_map(|it| [it.time, it.scale.model_time()]).map(micros);
    let (min, max) = (sizes().fold(f64::MAX, f64::min), sizes().fold(0.0, f64::max));
    if min >= max {
        return Err(PlotError::TooFew);
    }
    let (fastest, slowest) = (times().fold(f64::MAX, f64::min), times().fold(0.0, f64::max));
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&WHITE).map_err(failed)?;
        let mut chart = ChartBuilder::on(&root)
            .margin(24)
            .margin_right(48)
            .x_label_area_size(48)
            .y_label_area_size(72)
            .build_cartesian_2d(
                (min..max).log_scale().base(2.0),
                (fastest / 1.6..slowest * 1.6).log_scale(),
            )
            .map_err(failed)?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(RGBColor(225, 229, 234))
            .axis_style(INK)
            .label_style((FONT, 14, &INK))
            .x_labels(12)
            .x_label_formatter(&|bytes| in_words(*bytes))
            .y_label_formatter(&|micros| span_in_words(*micros))
            .x_desc("message")
            .y_desc("completion time")
            .axis_desc_style((FONT, 15, &INK))
            .draw()
            .map_err(failed)?;
        for (place, count) in ranks.iter().enumerate() {
            let colour = COLOURS[place % COLOURS.len()];
            let mut of_count: Vec<_> =
                results.iter().filter(|result| result.scale.ranks == *count).collect();
            of_count.sort_by_key(|result| result.scale.bytes);
            let point = |result: &&ScaleResult| result.scale.bytes as f64;
            let measured: Vec<_> = of_count.iter().map(|it| (point(it), micros(it.time))).collect();
            let model: Vec<_> =
                of_count.iter().map(|it| (point(it), micros(it.scale.model_time()))).collect();
            chart
                .draw_series(DashedLineSeries::new(model, 3, 5, colour.stroke_width(1)))
                .map_err(failed)?;
            chart
                .draw_series(
                    LineSeries::new(measured.clone(), colour.stroke_width(2)).point_size(3),
                )
                .map_err(failed)?;
            // The lines are far apart at the left.
            let Some(named) = measured.get(1).or(measured.first()).copied() else { continue };
            let style = TextStyle::from((FONT, 14).into_font())
                .color(&colour)
                .pos(Pos::new(HPos::Center, VPos::Bottom));
            let (x, y) = chart.backend_coord(&named);
            root.draw(&Text::new(format!("{count} ranks"), (x, y - 7), style)).map_err(failed)?;
        }
        let style = TextStyle::from((FONT, 14).into_font()).color(&INK);
        root.draw(&Text::new("solid: simulated    dashed: model", (96, 6), style))
            .map_err(failed)?;
        root.present().map_err(failed)?;
    }
    Ok(svg)
}

fn micros(span: std::time::Duration) -> f64 {
    span.as_secs_f64() * 1e6
}

fn in_words(bytes: f64) -> String {
    let bytes = bytes.round() as u64;
    match bytes {
        bytes if bytes >= 1 << 20 => format!("{} MiB", bytes >> 20),
        bytes if bytes >= 1 << 10 => format!("{} KiB", bytes >> 10),
        bytes => format!("{bytes} B"),
    }
}

fn span_in_words(micros: f64) -> String {
    if micros >= 1000.0 { format!("{} ms", micros / 1000.0) } else { format!("{micros} µs") }
}

const SIZE: (u32, u32) = (860, 520);
