//! Standard output, whose reader may go away.

use std::io::{self, Write};

use crate::error::{CliError, Result};

/// Prints text to standard output.
///
/// # Errors
/// If the reader has gone away, as `head` does after its lines: [`CliError::Quit`].
pub(crate) fn print(text: &str) -> Result {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(cannot_print)
}

/// Returns the error of a failed write to standard output, as [`print()`] does.
pub(crate) fn cannot_print(error: io::Error) -> CliError {
    match error.kind() {
        io::ErrorKind::BrokenPipe => CliError::Quit,
        _ => CliError::context("cannot print", error),
    }
}
