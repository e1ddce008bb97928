//! The log of the library, on standard error.

use std::io::{self, IsTerminal};

use tracing_subscriber::filter::LevelFilter;

/// Starts to print messages of at least the level in `ROCE_LOG`; warnings by default.
pub(crate) fn start() {
    let level = std::env::var("ROCE_LOG").ok().and_then(|level| level.parse().ok());
    tracing_subscriber::fmt()
        .with_max_level(level.unwrap_or(LevelFilter::WARN))
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .without_time()
        .with_target(false)
        .init();
}
