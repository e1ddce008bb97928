//! Errors of programs.

use std::io;
use std::process::ExitStatus;
use std::time::Duration;

/// Error of a program that was started.
///
/// The message names the program, and has the lines that it printed last.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProcessError {
    /// The program could not be started.
    #[error("cannot start {program}: {source}")]
    Start {
        /// Name of the program.
        program: String,
        /// Error of the system.
        source: io::Error,
    },
    /// The system refused to wait for the program.
    #[error("cannot wait for {program}: {source}")]
    Wait {
        /// Name of the program.
        program: String,
        /// Error of the system.
        source: io::Error,
    },
    /// The program failed.
    #[error("{program}: {}", with_status(.printed, *.status))]
    Failed {
        /// Name of the program.
        program: String,
        /// Its exit status.
        status: ExitStatus,
        /// Lines that it printed last.
        printed: String,
    },
    /// The program did not end within its limit, and was ended.
    #[error("{program} did not end within {:.0} s{}", .limit.as_secs_f32(), quoted(.printed))]
    TimedOut {
        /// Name of the program.
        program: String,
        /// The limit.
        limit: Duration,
        /// Lines that it printed last.
        printed: String,
    },
    /// The program printed no line within the limit.
    #[error("{program} printed no line within {:.0} s{}", .limit.as_secs_f32(), quoted(.printed))]
    Silent {
        /// Name of the program.
        program: String,
        /// The limit.
        limit: Duration,
        /// Lines that it printed last.
        printed: String,
    },
    /// The program ended before it listened, or did not listen within the limit.
    #[error("{program} does not listen {place}{}", quoted(.printed))]
    NotListening {
        /// Name of the program.
        program: String,
        /// The place, such as `at port 7`.
        place: String,
        /// Lines that it printed last.
        printed: String,
    },
}

fn with_status(printed: &str, status: ExitStatus) -> String {
    if printed.is_empty() { status.to_string() } else { format!("{printed} ({status})") }
}

fn quoted(printed: &str) -> String {
    if printed.is_empty() { String::new() } else { format!("; it printed: {printed}") }
}
