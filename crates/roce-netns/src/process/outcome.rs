//! The end of a program.

use std::process::ExitStatus;
use std::time::Duration;

use super::error::ProcessError;

/// Exit status and output of a program that has ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Exit status.
    pub status: ExitStatus,
    /// Standard output, as far as it was kept and not read line by line.
    pub stdout: String,
    /// Standard error, as far as it was kept.
    pub stderr: String,
    /// The limit, if the program did not end within it and was ended.
    pub exceeded: Option<Duration>,
    pub(super) program: String,
    pub(super) printed: String,
}

impl Outcome {
    /// Returns itself if the program has succeeded within its limit.
    ///
    /// # Errors
    /// [`ProcessError::TimedOut`] or [`ProcessError::Failed`], with the lines that it printed last.
    pub fn check(self) -> Result<Self, ProcessError> {
        let Self { status, program, printed, .. } = self;
        match self.exceeded {
            Some(limit) => Err(ProcessError::TimedOut { program, limit, printed }),
            None if status.success() => Ok(Self { program, printed, ..self }),
            None => Err(ProcessError::Failed { program, status, printed }),
        }
    }

    /// Returns standard output, then standard error.
    pub fn text(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }
}
