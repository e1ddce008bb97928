//! Signals as messages.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::error::Result;

/// A signal that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// A child ended or stopped.
    ChildChanged,
    /// A process sent it to this process.
    FromProcess(Signal),
    /// The kernel sent it, such as for Ctrl-C: it goes to all processes of the terminal's group, so
    /// that the program has it, too.
    FromKernel(Signal),
}

impl Received {
    /// Returns what a signal with this code means; nothing if the terminal was resized, which its
    /// processes have been told, too.
    fn of(signal: Signal, code: i32) -> Option<Self> {
        // Codes above 0 are the kernel's.
        match signal {
            Signal::SIGCHLD => Some(Self::ChildChanged),
            Signal::SIGWINCH if code > 0 => None,
            _ if code > 0 => Some(Self::FromKernel(signal)),
            _ => Some(Self::FromProcess(signal)),
        }
    }
}

/// What a wait has ended with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wake {
    Signal(Received),
    /// The other descriptor has something to read, or was closed at its other end.
    Readable,
    /// The point in time has come.
    Deadline,
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

/// Returns true if a signal ends programs that do not handle it, and is meant to.
pub(crate) fn ends_programs(signal: Signal) -> bool {
    matches!(signal, Signal::SIGHUP | Signal::SIGINT | Signal::SIGQUIT | Signal::SIGTERM)
}

fn blocked() -> SigSet {
    // A signal that is ignored, as nohup(1) and a script's background jobs have it, stays ignored: once
    // blocked, it would arrive.
    let ignored = ignored();
    let is_taken = |signal: &Signal| ignored >> (*signal as u32 - 1) & 1 == 0;
    PASSED_ON.into_iter().filter(is_taken).chain([Signal::SIGCHLD]).collect()
}

/// Returns the signals that this process ignores: bit n − 1 stands for signal n.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
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
        Ok(Self(SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?))
    }

    /// Waits for the next signal, for another descriptor that becomes readable, and until a point in time, if
    /// there are any.
    pub(crate) fn wait(
        &self,
        deadline: Option<Instant>,
        other: Option<BorrowedFd<'_>>,
    ) -> Result<Wake> {
        loop {
            while let Some(info) = self.0.read_signal()? {
                let signal = i32::try_from(info.ssi_signo).unwrap_or(0);
                let received = Received::of(Signal::try_from(signal)?, info.ssi_code);
                if let Some(received) = received {
                    return Ok(Wake::Signal(received));
                }
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(Wake::Deadline);
            }
            // Rounded up, so that the deadline has passed afterwards.
            let timeout = left.map_or(PollTimeout::NONE, |left| {
                PollTimeout::try_from(left.as_millis() + 1).unwrap_or(PollTimeout::MAX)
            });
            let watched = [Some(self.0.as_fd()), other].into_iter().flatten();
            let mut watched: Vec<_> =
                watched.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
            match poll(&mut watched, timeout) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            // Signals come first: the next round of this loop has them.
            let is_ready = |fd: &PollFd<'_>| fd.any().unwrap_or(false);
            if !watched.first().is_some_and(is_ready) && watched.get(1).is_some_and(is_ready) {
                return Ok(Wake::Readable);
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
        let interrupt = Some(Received::FromKernel(Signal::SIGINT));
        assert_eq!(Received::of(Signal::SIGINT, KERNEL), interrupt);
        for signal in [Signal::SIGWINCH, Signal::SIGTERM] {
            assert_eq!(Received::of(signal, 0), Some(Received::FromProcess(signal)));
        }
    }
}
