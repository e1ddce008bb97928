//! The processes that a program leaves behind.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpgid, getpgrp};
use roce_netns::process::{children_of, descendants_of, parent_of};
use rustix::process::{WaitOptions, wait};

/// Waits for a child that has ended, if there is one. A process whose parent has ended is a child of
/// this process, which is the first one of its namespace, or a subreaper.
pub(crate) fn reap() -> Option<(u32, ExitStatus)> {
    let (process, status) = wait(WaitOptions::NOHANG).ok().flatten()?;
    let process = process.as_raw_nonzero().get();
    Some((process.cast_unsigned(), ExitStatus::from_raw(status.as_raw())))
}

/// Kills all descendants of this process. A process that the kernel cannot end in time, such as one that
/// waits for a device, is left to it.
pub(crate) fn kill_all() {
    let deadline = Instant::now() + KILL_TIMEOUT;
    // The children of a process that ends become children of this one, until there are none.
    while has_children() && Instant::now() < deadline {
        for child in children_of(std::process::id()) {
            // It was not waited for, so its number is still its own.
            let _ = kill(pid(child), Signal::SIGKILL);
        }
        while reap().is_some() {}
        thread::sleep(KILL_INTERVAL);
    }
}

/// Returns true if there is a child, also one that has ended and was not waited for.
pub(crate) fn has_children() -> bool {
    while reap().is_some() {}
    wait(WaitOptions::NOHANG).is_ok()
}

/// Returns true if a process is this one's child, or that of such a one, and so on.
pub(crate) fn is_descendant(process: i32) -> bool {
    let own = std::process::id();
    let mut next = process.cast_unsigned();
    // A process whose parent ends gets another one meanwhile: no more steps than there can be.
    for _ in 0..MAX_GENERATIONS {
        match parent_of(next) {
            Some(parent) if parent == own => return true,
            Some(parent @ 2..) => next = parent,
            _ => return false,
        }
    }
    false
}

/// Generations of processes that are followed at most.
const MAX_GENERATIONS: u32 = 1024;

/// Returns the number of descendants of this process that run.
pub(crate) fn count() -> usize {
    all().count()
}

/// Sends a signal to all descendants of this process.
pub(crate) fn signal_all(signal: Signal) {
    send(signal, all());
}

/// Sends a signal to the descendants of this process that are not of its process group.
pub(crate) fn signal_other_groups(signal: Signal) {
    let own = Some(getpgrp());
    send(signal, all().filter(|process| getpgid(Some(*process)).ok() != own));
}

fn send(signal: Signal, to: impl IntoIterator<Item = Pid>) {
    for process in to {
        // One that has ended since may be a grandchild whose number is free: numbers are given in turn.
        let _ = kill(process, signal);
    }
}

/// Returns the descendants of this process that run.
fn all() -> impl Iterator<Item = Pid> {
    descendants_of(std::process::id()).into_iter().map(pid)
}

fn pid(process: u32) -> Pid {
    Pid::from_raw(process.cast_signed())
}

/// Time that processes may take to end once they are killed.
const KILL_TIMEOUT: Duration = Duration::from_secs(3);

/// Time between two looks for processes that are left.
const KILL_INTERVAL: Duration = Duration::from_millis(1);
