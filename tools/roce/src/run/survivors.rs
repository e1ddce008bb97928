//! What goes on after the program's end: processes that it has started.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::front::Front;
use crate::error::Result;
use crate::ranks::END_TIMEOUT;
use crate::run::processes::descendants;
use crate::run::processes::signals::{Received, Signals, Wake, ends_programs};

/// Time that processes have to end with the program before they count as going on: the last ones of a shell's
/// pipeline end a moment after it.
const GRACE: Duration = Duration::from_millis(100);

/// How a wait for all descendants has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// They have ended by themselves, or after a signal.
    AllGone,
    /// They were stopped since the time of the run was over.
    TimedOut,
}

/// Returns the number of descendants that go on.
pub(crate) fn count(signals: &Signals) -> Result<usize> {
    let deadline = Instant::now() + GRACE;
    loop {
        while descendants::reap().is_some() {}
        let left = descendants::count();
        if left == 0 || signals.wait(Some(deadline), None)? == Wake::Deadline {
            return Ok(left);
        }
    }
}

/// Waits for all descendants (`--wait`). A signal goes to each of them that does not have it by the terminal; one
/// that ends programs gives them three seconds, and so does the end of `timeout`. If the process in front is killed,
/// they are, too.
pub(crate) fn wait(
    signals: &Signals,
    timeout: Option<Instant>,
    front: Option<&Front>,
) -> Result<Waited> {
    let (mut timeout, mut deadline) = (timeout, None::<Instant>);
    let mut waited = Waited::AllGone;
    let socket = front.map(AsFd::as_fd);
    while descendants::has_children() {
        let wake = [timeout, deadline].into_iter().flatten().min();
        match signals.wait(wake, socket)? {
            Wake::Signal(Received::ChildChanged) => {}
            Wake::Signal(
                received @ (Received::FromProcess(signal) | Received::FromKernel(signal)),
            ) => {
                match received {
                    // The terminal's group has it.
                    Received::FromKernel(_) => descendants::signal_other_groups(signal),
                    _ => descendants::signal_all(signal),
                }
                if ends_programs(signal) {
                    deadline.get_or_insert(Instant::now() + END_TIMEOUT);
                }
            }
            Wake::Readable => {
                descendants::kill_all();
                return Ok(waited);
            }
            Wake::Deadline => {
                let now = Instant::now();
                if deadline.is_some_and(|deadline| now >= deadline) {
                    descendants::kill_all();
                    return Ok(waited);
                }
                if timeout.is_some_and(|timeout| now >= timeout) {
                    (timeout, waited) = (None, Waited::TimedOut);
                    descendants::signal_all(Signal::SIGTERM);
                    deadline.get_or_insert(now + END_TIMEOUT);
                }
            }
        }
    }
    Ok(waited)
}

/// Waits in the background until no descendant is left. Returns false if a signal ends the wait before.
pub(crate) fn keep(signals: &Signals) -> Result<bool> {
    while descendants::has_children() {
        match signals.wait(None, None)? {
            Wake::Signal(Received::FromProcess(signal)) if signal != Signal::SIGWINCH => {
                return Ok(false);
            }
            _ => {}
        }
    }
    Ok(true)
}

/// Returns what to say of processes that go on. `is_first`: the process in front is the first one of its PID
/// namespace.
pub(crate) fn sentence(program: &str, count: usize, is_first: bool) -> String {
    let (processes, it) = match count {
        1 => ("1 process".to_owned(), "it has started goes on"),
        _ => (format!("{count} processes"), "it has started go on"),
    };
    match is_first {
        true => format!(
            "{program} has ended; {processes} that it has started will be killed, since roce is the first process \
             here: --wait waits for them"
        ),
        false => format!("{program} has ended; {processes} that {it}; --wait waits for them"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_says_how_many_processes_go_on() {
        assert_eq!(
            sentence("./d", 1, false),
            "./d has ended; 1 process that it has started goes on; --wait waits for them"
        );
        assert!(sentence("./d", 2, false).contains("2 processes that it has started go on"));
        assert!(sentence("./d", 2, true).contains("will be killed"));
    }
}
