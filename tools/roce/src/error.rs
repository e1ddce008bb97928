//! How a command fails: one line that says what happened and what to do, and exit code 1.

use std::error::Error;
use std::process::ExitCode;

/// Why a command did not succeed; its text is all that the user gets to see.
#[derive(Debug)]
pub(crate) enum CliError {
    /// Something that the user has to be told.
    Message(String),
    /// A child process has told it already; this was its exit code.
    Reported(u8),
}

/// What every command returns.
pub(crate) type Result<T = (), E = CliError> = std::result::Result<T, E>;

impl CliError {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self::Message(text.into())
    }

    /// `what` failed because of `error`.
    pub(crate) fn context(what: impl AsRef<str>, error: impl Error) -> Self {
        Self::Message(format!("{}: {}", what.as_ref(), with_causes(&error)))
    }
}

impl<E: Error> From<E> for CliError {
    fn from(error: E) -> Self {
        Self::Message(with_causes(&error))
    }
}

/// The error's text with those of its causes behind, unless a text holds its cause already.
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

/// Prints the reason and turns it into an exit code.
pub(crate) fn report(error: CliError) -> ExitCode {
    match error {
        CliError::Message(text) => {
            eprintln!("roce: {text}");
            ExitCode::FAILURE
        }
        CliError::Reported(code) => ExitCode::from(code),
    }
}
