//! A command in the guest.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use crate::GuestError;
use crate::control::{Control, Event};
use crate::status::Status;

/// Result of a command.
#[derive(Clone, Debug)]
pub struct Output {
    /// Exit status.
    pub status: Status,
    /// Standard output as text.
    pub stdout: String,
    /// Standard error as text.
    pub stderr: String,
}

/// A command running in the guest.
///
/// Keeps the output until it is read. Dropping it kills the command.
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
    /// [`GuestError::Gone`] if the guest has ended.
    pub fn write(&self, bytes: &[u8]) -> Result<(), GuestError> {
        self.control.input(self.number, bytes)
    }

    /// Closes the command's standard input once it has read all that was written.
    ///
    /// # Errors
    /// [`GuestError::Gone`] if the guest has ended.
    pub fn close_stdin(&self) -> Result<(), GuestError> {
        self.control.close_input(self.number)
    }

    /// Returns the next line of standard output without its newline; `None` after the last line.
    ///
    /// # Errors
    /// [`GuestError::TimedOut`] without a line within `limit`, [`GuestError::Gone`].
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
    /// [`GuestError::TimedOut`] after `limit` (the command goes on), [`GuestError::Gone`].
    pub fn wait(&mut self, limit: Duration) -> Result<Output, GuestError> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(output) = self.output() {
                return Ok(output);
            }
            self.take_event(deadline, limit, "the end")?;
        }
    }

    /// Returns status and output if the command has ended; does not wait.
    ///
    /// # Errors
    /// [`GuestError::Gone`] if the guest has ended.
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

    /// Sends a signal (9 is SIGKILL) to the command's process group.
    ///
    /// # Errors
    /// [`GuestError::Gone`] if the guest has ended.
    pub fn kill(&self, signal: u8) -> Result<(), GuestError> {
        self.control.kill(self.number, signal)
    }

    /// Returns the standard error so far.
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

    /// Returns status and output after the end of the command.
    fn output(&self) -> Option<Output> {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        let (stdout, stderr) = (text(&self.stdout), text(&self.stderr));
        self.status.map(|status| Output { status, stdout, stderr })
    }
}

impl Drop for GuestProcess {
    fn drop(&mut self) {
        if self.status.is_none() {
            let _ = self.kill(9); // the guest may have ended
        }
        self.control.forget(self.number);
    }
}
