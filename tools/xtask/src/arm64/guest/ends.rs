//! Programs at the two ends of the guest's cable.

use std::process::Child;
use std::time::{Duration, Instant};

use roce_guest::GuestProcess;

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
    /// Empty once it has ended.
    Here(Option<Child>),
}

impl End {
    /// Waits for the end, and returns what the program wrote.
    ///
    /// # Errors
    /// If it failed, with what it wrote; if it did not end in time.
    pub(super) fn succeed(&mut self, limit: Duration) -> Result<String> {
        let (is_success, text) = match self {
            Self::InGuest(process) => {
                let output = process.wait(limit)?;
                (output.status.is_success(), output.stdout + &output.stderr)
            }
            Self::Here(process) => {
                let deadline = Instant::now() + limit;
                let mut child = process.take().ok_or("the program has ended before")?;
                // Its output fits into a pipe.
                while child.try_wait()?.is_none() {
                    if Instant::now() > deadline {
                        *process = Some(child);
                        return Err("the program on this machine did not end".into());
                    }
                    std::thread::sleep(Duration::from_millis(10));
                }
                let output = child.wait_with_output()?;
                let text = [output.stdout, output.stderr].concat();
                (output.status.success(), String::from_utf8_lossy(&text).into_owned())
            }
        };
        if is_success { Ok(text) } else { Err(text.into()) }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        if let Self::Here(Some(child)) = self {
            let _ = child.kill(); // it may have ended
            let _ = child.wait();
        }
    }
}
