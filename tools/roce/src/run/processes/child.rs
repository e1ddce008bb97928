//! The process that this one waits for.
//!
//! `roce_netns::process` reaps only what it has started, on threads. This process also reaps those whose parent
//! has ended, waits for signals and a socket at the same time, and may have no thread yet.

use std::os::fd::BorrowedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Instant;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::descendants;
use super::signals::{Received, Signals, Wake};
use crate::error::Result;
use crate::ranks::END_TIMEOUT;

/// The end of a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    pub(crate) status: ExitStatus,
    /// The process was stopped because its time was over.
    pub(crate) has_timed_out: bool,
    /// A signal reached this process before, so that the user or a program has ended the process.
    is_interrupted: bool,
}

impl End {
    /// Returns the signal that ended the process, unless it came by way of this process or from the
    /// terminal.
    pub(crate) fn signal(&self) -> Option<Signal> {
        let is_known = self.is_interrupted || self.has_timed_out;
        signal_of(self.status).filter(|_| !is_known)
    }
}

/// Returns the signal that ended a process.
pub(crate) fn signal_of(status: ExitStatus) -> Option<Signal> {
    Signal::try_from(status.signal()?).ok()
}

/// How long a process may run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limits {
    /// As long as it likes: another process ends it in time.
    None,
    /// Until its time is over, if it has one, and for [`END_TIMEOUT`] after a signal that ends
    /// programs. Ctrl-C is none: debuggers and interpreters are used with it.
    Own { timeout: Option<Instant> },
}

impl Limits {
    /// Returns true if a process that ignores the signal is killed.
    fn ends_after(self, received: Received) -> bool {
        use Signal::{SIGHUP, SIGTERM};
        let is_end = matches!(
            received,
            Received::FromProcess(SIGHUP | SIGTERM) | Received::FromKernel(SIGHUP | SIGTERM)
        );
        matches!(self, Self::Own { .. }) && is_end
    }
}

/// Waits for a child, passes signals on to it, and returns its end. Other children are reaped: of processes whose
/// parent has ended, if this one is the first of its PID namespace or a subreaper. The child is killed if
/// `starter`, a socket, was closed at its other end.
pub(crate) fn follow(
    id: Pid,
    signals: &Signals,
    limits: Limits,
    mut starter: Option<BorrowedFd<'_>>,
) -> Result<End> {
    let mut timeout = match limits {
        Limits::Own { timeout } => timeout,
        Limits::None => None,
    };
    // When the child is killed.
    let mut deadline: Option<Instant> = None;
    let (mut is_interrupted, mut has_timed_out) = (false, false);
    // The child is not waited for before its end is seen, so its number stays its own.
    let send = |signal| {
        let _ = kill(id, signal);
    };
    loop {
        let wake = [deadline, timeout].into_iter().flatten().min();
        let wake = signals.wait(wake, starter)?;
        match wake {
            Wake::Signal(Received::ChildChanged) => {
                while let Some((process, status)) = descendants::reap() {
                    if process == id.as_raw().cast_unsigned() {
                        return Ok(End { status, has_timed_out, is_interrupted });
                    }
                }
            }
            Wake::Signal(Received::FromProcess(signal)) => {
                is_interrupted = true;
                send(signal);
            }
            Wake::Signal(Received::FromKernel(_)) => is_interrupted = true,
            Wake::Readable => {
                starter = None;
                is_interrupted = true;
                send(Signal::SIGKILL);
            }
            Wake::Deadline => {
                let now = Instant::now();
                if deadline.is_some_and(|deadline| now >= deadline) {
                    send(Signal::SIGKILL);
                    deadline = None;
                }
                if timeout.is_some_and(|timeout| now >= timeout) {
                    timeout = None;
                    has_timed_out = true;
                    send(Signal::SIGTERM);
                    deadline.get_or_insert(now + END_TIMEOUT);
                }
            }
        }
        if matches!(wake, Wake::Signal(received) if limits.ends_after(received)) {
            deadline.get_or_insert(Instant::now() + END_TIMEOUT);
        }
    }
}

/// Returns the exit code that a shell would give.
pub(crate) fn code_of(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}
