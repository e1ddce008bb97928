//! What the plots have in common.

use plotters::style::RGBColor;
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
