//! The process of the program.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};

use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;

use crate::error::{CliError, Result};

/// The end of a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    pub(crate) status: ExitStatus,
    /// A signal reached this process before, so that the user or a program has ended the process.
    is_interrupted: bool,
}

impl End {
    /// Returns the signal that ended the process, unless it came by way of this process or from the
    /// terminal.
    pub(crate) fn signal(&self) -> Option<Signal> {
        let signal = self.status.signal().filter(|_| !self.is_interrupted)?;
        Signal::try_from(signal).ok()
    }
}

/// Starts a process, passes signals on, and returns its end.
pub(crate) fn run(mut command: Command, signals: &Signals) -> Result<End> {
    let mut child =
        command.spawn().map_err(|error| CliError::context("starting roce again", error))?;
    let id = Pid::from_raw(child.id().try_into().unwrap_or(i32::MAX));
    let mut is_interrupted = false;
    loop {
        match signals.next()? {
            Received::ChildChanged => {
                if let Some(status) = child.try_wait()? {
                    return Ok(End { status, is_interrupted });
                }
            }
            Received::FromProcess(signal) => {
                is_interrupted = true;
                // The child was not waited for yet, so its number is still its own.
                let _ = kill(id, signal);
            }
            Received::FromKernel => is_interrupted = true,
        }
    }
}

/// Returns the exit code that a shell would give.
pub(crate) fn code_of(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

/// A signal that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// A child ended or stopped.
    ChildChanged,
    /// A process sent it to this process.
    FromProcess(Signal),
    /// The kernel sent it, such as for Ctrl-C: it goes to all processes of the terminal's group, so
    /// that the program has it, too.
    FromKernel,
}

impl Received {
    /// Returns what a signal with this code means; nothing if the terminal was resized, which its
    /// processes have been told, too.
    fn of(signal: Signal, code: i32) -> Option<Self> {
        // Codes above 0 are the kernel's.
        match signal {
            Signal::SIGCHLD => Some(Self::ChildChanged),
            Signal::SIGWINCH if code > 0 => None,
            _ if code > 0 => Some(Self::FromKernel),
            _ => Some(Self::FromProcess(signal)),
        }
    }
}

/// The signals that are passed on.
const PASSED_ON: [Signal; 7] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
];

fn blocked() -> SigSet {
    PASSED_ON.into_iter().chain([Signal::SIGCHLD]).collect()
}

/// Lets this thread take the signals again.
pub(crate) fn unblock() -> Result {
    Ok(blocked().thread_unblock()?)
}

/// Signals as messages. A process that is started inherits that they are blocked, until it calls
/// [`unblock`].
#[derive(Debug)]
pub(crate) struct Signals(SignalFd);

impl Signals {
    /// Blocks the signals in this thread and in those that it starts later.
    pub(crate) fn block() -> Result<Self> {
        let set = blocked();
        set.thread_block()?;
        Ok(Self(SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC)?))
    }

    /// Waits for the next signal.
    pub(crate) fn next(&self) -> Result<Received> {
        loop {
            let Some(info) = self.0.read_signal()? else { continue };
            let signal = i32::try_from(info.ssi_signo).unwrap_or(0);
            if let Some(received) = Received::of(Signal::try_from(signal)?, info.ssi_code) {
                return Ok(received);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resized_terminal_ends_nothing() {
        const KERNEL: i32 = 0x80;
        assert_eq!(Received::of(Signal::SIGWINCH, KERNEL), None);
        assert_eq!(Received::of(Signal::SIGINT, KERNEL), Some(Received::FromKernel));
        for signal in [Signal::SIGWINCH, Signal::SIGTERM] {
            assert_eq!(Received::of(signal, 0), Some(Received::FromProcess(signal)));
        }
    }
}
