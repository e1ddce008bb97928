//! The log of the library, on standard error.

use std::env;
use std::io::{self, IsTerminal, Write};

use tracing_subscriber::filter::LevelFilter;

/// The environment variable with the level.
pub(crate) const VARIABLE: &str = "ROCE_LOG";

/// Starts to print messages of at least the level in `ROCE_LOG`; warnings by default. Warns about a
/// value that is no level.
pub(crate) fn start() {
    if let Some(value) = invalid_level() {
        // Standard error may be closed.
        let _ = writeln!(
            io::stderr(),
            "roce: {VARIABLE}={value} is not a log level; use error, warn, info, debug, trace or off \
             (using warn)"
        );
    }
    let level = env::var(VARIABLE).ok().and_then(|level| level.parse().ok());
    tracing_subscriber::fmt()
        .with_max_level(level.unwrap_or(LevelFilter::WARN))
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .without_time()
        .with_target(false)
        .init();
}

/// Returns the value of `ROCE_LOG` if it is not a level.
pub(crate) fn invalid_level() -> Option<String> {
    let value = env::var_os(VARIABLE)?.to_string_lossy().into_owned();
    value.parse::<LevelFilter>().is_err().then_some(value)
}
