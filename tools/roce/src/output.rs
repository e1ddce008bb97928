//! Standard output, whose reader may go away.

use std::io::{self, Write};

use crate::error::{CliError, Result};

/// Prints text to standard output.
///
/// # Errors
/// If the reader has gone away, as `head` does after its lines: [`CliError::Reported`] with status
/// 0, which ends the command without a message.
pub(crate) fn print(text: &str) -> Result {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(CliError::Reported(0)),
        Err(error) => Err(CliError::context("cannot print", error)),
        Ok(()) => Ok(()),
    }
}
