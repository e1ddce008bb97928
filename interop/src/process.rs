//! A process that is started, waited for, and ended in any case.

use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::Fault;

/// What a process left behind.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) status: ExitStatus,
    /// Standard output, then standard error.
    pub(crate) text: String,
}

impl Outcome {
    fn of(output: std::io::Result<Output>) -> Result<Self, Fault> {
        let output = output.map_err(Fault::ours("wait for the program"))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        Ok(Self { status: output.status, text })
    }
}

/// A process whose output is collected while it runs.
#[derive(Debug)]
pub(crate) struct Process {
    pid: Pid,
    ended: mpsc::Receiver<std::io::Result<Output>>,
    /// Its end was received: the number may be another process's now.
    is_over: bool,
}

impl Process {
    /// Starts a command with the given way.
    pub(crate) fn start(
        mut command: Command,
        spawn: impl FnOnce(Command) -> std::io::Result<Child>,
    ) -> Result<Self, Fault> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = spawn(command).map_err(Fault::ours("start the program"))?;
        let pid = Pid::from_raw(child.id().cast_signed());
        let (sender, ended) = mpsc::channel();
        // It reads both streams, so that the program never waits for space in a pipe.
        std::thread::spawn(move || sender.send(child.wait_with_output()));
        Ok(Self { pid, ended, is_over: false })
    }

    /// Returns its number.
    pub(crate) fn id(&self) -> u32 {
        self.pid.as_raw().cast_unsigned()
    }

    /// Returns how it ended, if it has.
    pub(crate) fn ended(&mut self) -> Result<Option<Outcome>, Fault> {
        match self.ended.try_recv() {
            Err(_) => Ok(None),
            Ok(output) => {
                self.is_over = true;
                Ok(Some(Outcome::of(output)?))
            }
        }
    }

    /// Waits for its end; after `limit` ends it.
    pub(crate) fn wait(mut self, limit: Duration) -> Result<Outcome, Fault> {
        match self.ended.recv_timeout(limit) {
            Ok(output) => {
                self.is_over = true;
                Outcome::of(output)
            }
            Err(RecvTimeoutError::Timeout) => {
                let text = Outcome::of(self.end()?)?.text;
                Err(Fault::Wrong(format!("no end within {limit:?}; it printed: {text}")))
            }
            Err(RecvTimeoutError::Disconnected) => {
                Err(Fault::Wrong("the thread that waits for the program ended".into()))
            }
        }
    }

    /// Asks it to end, then ends it.
    fn end(&mut self) -> Result<std::io::Result<Output>, Fault> {
        for signal in [Signal::SIGTERM, Signal::SIGKILL] {
            // It may have ended just now.
            let _gone = kill(self.pid, signal);
            if let Ok(output) = self.ended.recv_timeout(GRACE) {
                self.is_over = true;
                return Ok(output);
            }
        }
        Err(Fault::Wrong("the program cannot be killed".into()))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.is_over {
            let _given_up = self.end();
        }
    }
}

/// Time that a program has to end after a signal.
const GRACE: Duration = Duration::from_secs(5);
