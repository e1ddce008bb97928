//! What the checks in the guest say.

use std::time::Instant;

use crate::Result;

/// The checks so far.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// Names of those that failed.
    failures: Vec<String>,
}

impl Report {
    /// Does a check, and prints its name, one line of what came of it, and the seconds.
    pub(super) fn check(&mut self, name: &str, work: impl FnOnce() -> Result<String>) {
        let started = Instant::now();
        let (verdict, line) = match work() {
            Ok(line) => ("ok", line),
            Err(error) => {
                self.failures.push(name.to_owned());
                ("FAILED", error.to_string())
            }
        };
        let seconds = started.elapsed().as_secs_f32();
        println!("{verdict:>6} {name} ({seconds:.1} s)\n       {}", line.trim());
    }

    /// Returns an error that names the checks that failed, if any.
    pub(super) fn verdict(&self) -> Result<()> {
        match &self.failures[..] {
            [] => Ok(()),
            failures => Err(format!("failed on arm64: {}", failures.join("; ")).into()),
        }
    }
}
