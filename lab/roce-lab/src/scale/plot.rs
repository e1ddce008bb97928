//! Plot of completion times beside the α-β model.

use super::ScaleResult;
use crate::chart::{Axis, Chart, PlotError, Series, Shape, bytes, draw, plain};

/// Plots completion time over message size as SVG: a line for each number of ranks, and a dashed
/// one of the model. Both axes are logarithmic.
///
/// # Errors
/// [`PlotError`].
pub fn plot(results: &[ScaleResult]) -> Result<String, PlotError> {
    let mut results: Vec<_> = results.iter().collect();
    // The line that is above comes first in the legend.
    results.sort_by_key(|it| (std::cmp::Reverse(it.scale.ranks), it.scale.bytes));
    let mut series = Vec::new();
    for (number, group) in results.chunk_by(|a, b| a.scale.ranks == b.scale.ranks).enumerate() {
        let line = |name: String, shape, time: fn(&ScaleResult) -> std::time::Duration| {
            let point =
                |it: &&ScaleResult| (it.scale.bytes.max(1) as f64, time(it).as_secs_f64() * 1e6);
            Series::new(name, number, shape, group.iter().map(point).collect())
        };
        let ranks = group[0].scale.ranks;
        series.push(line(format!("{ranks} ranks"), Shape::Dotted, |it| it.time));
        series.push(line(String::new(), Shape::Dashed, |it| it.scale.model_time()));
    }
    if let Some(model) = series.last_mut() {
        "model (dashed)".clone_into(&mut model.name);
    }
    let size = |size: f64| bytes(size as u64);
    let chart = Chart {
        title: "time of an allreduce, simulated and by the model".to_owned(),
        x: Axis {
            base: Some(2.0),
            most_labels: 12,
            label: Box::new(size),
            ..Axis::linear("message")
        },
        y: Axis {
            base: Some(10.0),
            most_labels: 10,
            label: Box::new(span_in_words),
            ..Axis::linear("completion time")
        },
        series,
    };
    draw(&[chart], SIZE).map_err(|why| match why {
        PlotError::OnePoint => PlotError::TooFew,
        why => why,
    })
}

fn span_in_words(micros: f64) -> String {
    if micros >= 1000.0 {
        format!("{} ms", plain(micros / 1000.0))
    } else {
        format!("{} µs", plain(micros))
    }
}

const SIZE: (u32, u32) = (860, 520);
