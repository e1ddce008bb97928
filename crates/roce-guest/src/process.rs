//! A command that runs, or ran, in the guest.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use crate::GuestError;
use crate::control::{Control, Event};

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It ended by itself with this status; 0 is success.
    Exited(u8),
    /// This signal ended it.
    Killed(u8),
}

impl Status {
    /// Whether the command ended by itself with status 0.
    pub const fn is_success(self) -> bool {
        matches!(self, Self::Exited(0))
    }

    /// The status with which the command ended by itself.
    pub const fn code(self) -> Option<i32> {
        match self {
            Self::Exited(status) => Some(status as i32),
            Self::Killed(_) => None,
        }
    }

    pub(crate) fn from_code(code: u32) -> Self {
        match u8::try_from(code) {
            Ok(status) => Self::Exited(status),
            Err(_) => Self::Killed((code & 0xff) as u8),
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(status) => write!(f, "status {status}"),
            Self::Killed(signal) => write!(f, "signal {signal}"),
        }
    }
}

/// Result of a command.
#[derive(Clone, Debug)]
pub struct Output {
    /// How it ended.
    pub status: Status,
    /// All it wrote on standard output, as text.
    pub stdout: String,
    /// All it wrote on standard error, as text.
    pub stderr: String,
}

/// A command running in the guest.
///
/// Its output is kept here until it is taken. Dropping this kills the command.
#[derive(Debug)]
pub struct GuestProcess {
    control: Arc<Control>,
    number: u32,
    events: Receiver<Event>,
    command: String,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    status: Option<Status>,
}

impl GuestProcess {
    pub(crate) fn start(control: Arc<Control>, command: &str) -> Result<Self, GuestError> {
        let (number, events) = control.run(command)?;
        Ok(Self {
            control,
            number,
            events,
            command: command.to_owned(),
            stdout: Vec::new(),
            stderr: Vec::new(),
            status: None,
        })
    }

    /// Writes to the command's standard input.
    ///
    /// # Errors
    /// [`GuestError::Gone`] with the guest.
    pub fn write(&self, bytes: &[u8]) -> Result<(), GuestError> {
        self.control.input(self.number, bytes)
    }

    /// Closes the command's standard input once it has read all that was written.
    ///
    /// # Errors
    /// [`GuestError::Gone`] with the guest.
    pub fn close_stdin(&self) -> Result<(), GuestError> {
        self.control.close_input(self.number)
    }

    /// The next line of standard output, without its end; `None` after the last.
    ///
    /// # Errors
    /// [`GuestError::TimedOut`] when none came within `limit`, [`GuestError::Gone`].
    pub fn read_line(&mut self, limit: Duration) -> Result<Option<String>, GuestError> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(end) = self.stdout.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.stdout.drain(..=end).collect();
                return Ok(Some(String::from_utf8_lossy(&line[..end]).into_owned()));
            }
            if self.status.is_some() {
                let rest = std::mem::take(&mut self.stdout);
                let rest = String::from_utf8_lossy(&rest).into_owned();
                return Ok((!rest.is_empty()).then_some(rest));
            }
            self.take_event(deadline, limit, "a line of output")?;
        }
    }

    /// Waits for the command to end.
    ///
    /// # Errors
    /// [`GuestError::TimedOut`] when it has not within `limit` (it goes on), [`GuestError::Gone`].
    pub fn wait(&mut self, limit: Duration) -> Result<Output, GuestError> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(output) = self.output() {
                return Ok(output);
            }
            self.take_event(deadline, limit, "the end")?;
        }
    }

    /// What the command left behind, if it has ended; never waits.
    ///
    /// # Errors
    /// [`GuestError::Gone`] with the guest.
    pub fn try_wait(&mut self) -> Result<Option<Output>, GuestError> {
        while self.status.is_none() {
            match self.events.try_recv() {
                Ok(event) => self.note(event),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return Err(self.control.gone()),
            }
        }
        Ok(self.output())
    }

    /// Sends a signal (9 is SIGKILL) to the command and all it started.
    ///
    /// # Errors
    /// [`GuestError::Gone`] with the guest.
    pub fn kill(&self, signal: u8) -> Result<(), GuestError> {
        self.control.kill(self.number, signal)
    }

    /// What came on standard error up to now.
    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    fn take_event(
        &mut self,
        deadline: Instant,
        limit: Duration,
        what: &str,
    ) -> Result<(), GuestError> {
        let left = deadline.saturating_duration_since(Instant::now());
        match self.events.recv_timeout(left) {
            Ok(event) => self.note(event),
            Err(RecvTimeoutError::Timeout) => {
                return Err(self
                    .control
                    .timed_out(&format!("{what} of `{}`", self.command), limit));
            }
            Err(RecvTimeoutError::Disconnected) => return Err(self.control.gone()),
        }
        Ok(())
    }

    fn note(&mut self, event: Event) {
        match event {
            Event::Stdout(bytes) => self.stdout.extend_from_slice(&bytes),
            Event::Stderr(bytes) => self.stderr.extend_from_slice(&bytes),
            Event::Ended(code) => self.status = Some(Status::from_code(code)),
        }
    }

    /// What the command left behind, if it is known to have ended.
    fn output(&self) -> Option<Output> {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        let (stdout, stderr) = (text(&self.stdout), text(&self.stderr));
        self.status.map(|status| Output { status, stdout, stderr })
    }
}

impl Drop for GuestProcess {
    fn drop(&mut self) {
        if self.status.is_none() {
            let _ = self.kill(9); // the guest may be gone, and with it the command
        }
        self.control.forget(self.number);
    }
}
