//! The exit codes of a run that are none of its program.

use crate::error::CliError;

/// Exit code of a command that could not run its program, as env(1) has it.
pub(in crate::run) const FAILED: u8 = 125;

/// Exit code of a run that has not shown what `--require` asks for.
pub(in crate::run) const NOT_SHOWN: u8 = 123;

/// Exit code of a run whose time is over, as timeout(1) has it.
pub(in crate::run) const TIMED_OUT: u8 = 124;

/// Prints the reason why a program was not run, and returns the exit code: 1 could be the program's.
pub(in crate::run) fn not_run(error: CliError) -> CliError {
    match error {
        CliError::Message(text) => {
            eprintln!("roce: {text}");
            CliError::Reported(FAILED)
        }
        reported => reported,
    }
}
