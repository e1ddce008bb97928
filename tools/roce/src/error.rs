//! Errors of commands: one line with the problem and what to do, and exit code 1.

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;

/// The failure of a command; its text is all that the user sees.
#[derive(Debug)]
pub(crate) enum CliError {
    /// A message to print.
    Message(String),
    /// The exit code of a child process that has printed the message.
    Reported(u8),
    /// The user takes no more output, or has ended a dialogue: a success.
    Quit,
}

/// The result of a command.
pub(crate) type Result<T = (), E = CliError> = std::result::Result<T, E>;

impl CliError {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self::Message(text.into())
    }

    /// Returns the error of a failed `what`.
    pub(crate) fn context(what: impl AsRef<str>, error: impl Error) -> Self {
        Self::Message(format!("{}: {}", what.as_ref(), with_causes(&error)))
    }
}

impl<E: Error> From<E> for CliError {
    fn from(error: E) -> Self {
        Self::Message(with_causes(&error))
    }
}

/// Returns the texts of an error and its causes, without repetitions.
fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let more = next.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = next.source();
    }
    text
}

/// Prints the message and returns the exit code.
pub(crate) fn report(error: CliError) -> ExitCode {
    match error {
        CliError::Message(text) => {
            // Standard error may be closed, too.
            let _ = writeln!(io::stderr(), "roce: {text}");
            ExitCode::FAILURE
        }
        CliError::Reported(code) => ExitCode::from(code),
        CliError::Quit => ExitCode::SUCCESS,
    }
}
