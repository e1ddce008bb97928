//! Programs at the two ends of the guest's cable.

use std::time::Duration;

use roce_guest::GuestProcess;
use roce_netns::process::Running;

use crate::Result;

/// A side of the cable, and how it runs a program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Side<'a> {
    pub(super) name: &'a str,
    /// The command, up to the arguments that are the same on both sides.
    pub(super) prefix: &'a str,
    pub(super) address: &'a str,
}

/// A running program; dropping it ends it.
#[derive(Debug)]
pub(super) enum End {
    InGuest(GuestProcess),
    Here(Running),
}

impl End {
    /// Waits for the end, and returns what the program wrote.
    ///
    /// # Errors
    /// If it failed, with what it wrote; if it did not end in time.
    pub(super) fn succeed(self, limit: Duration) -> Result<String> {
        let (is_success, text) = match self {
            Self::InGuest(mut process) => {
                let output = process.wait(limit)?;
                (output.status.is_success(), output.stdout + &output.stderr)
            }
            Self::Here(running) => {
                let outcome = running.wait(limit)?;
                if outcome.exceeded.is_some() {
                    return Err("the program on this machine did not end".into());
                }
                (outcome.status.success(), outcome.text())
            }
        };
        if is_success { Ok(text) } else { Err(text.into()) }
    }
}
