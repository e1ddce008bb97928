//! What an end of a private network does when it is told to end.

use std::process;
use std::thread;

use nix::sys::signal::{SigSet, Signal};

use crate::error::Result;

/// SIGTERM as a message: blocked until a thread takes it.
#[derive(Debug)]
pub(crate) struct Termination(SigSet);

impl Termination {
    /// Blocks the signal in this thread and in those that it starts later.
    pub(crate) fn block() -> Result<Self> {
        let set = SigSet::from(Signal::SIGTERM);
        set.thread_block()?;
        Ok(Self(set))
    }

    /// Runs `last` when the signal comes, and then ends the process.
    pub(crate) fn handle(self, last: impl FnOnce() + Send + 'static) -> Result {
        thread::Builder::new().name("termination".to_owned()).spawn(move || {
            if self.0.wait().is_ok() {
                last();
                process::exit(1);
            }
        })?;
        Ok(())
    }
}
