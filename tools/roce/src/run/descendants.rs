//! The processes that a program leaves behind.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
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
            let _ = kill(child, Signal::SIGKILL);
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
        let status = fs::read_to_string(format!("/proc/{next}/stat")).unwrap_or_default();
        match parent_in(&status) {
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
    all().len()
}

/// Sends a signal to all descendants of this process.
pub(crate) fn signal_all(signal: Signal) {
    for process in all() {
        // One that has ended since may be a grandchild whose number is free: numbers are given in turn.
        let _ = kill(process, signal);
    }
}

/// Returns the descendants of this process that run.
fn all() -> Vec<Pid> {
    let mut found = Vec::new();
    let mut parents = vec![std::process::id()];
    while let Some(parent) = parents.pop() {
        for child in children_of(parent) {
            parents.push(child.as_raw().cast_unsigned());
            found.push(child);
        }
    }
    found
}

/// Returns the children of a process that run.
fn children_of(parent: u32) -> Vec<Pid> {
    let is_child = |process: &i32| {
        let status = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        parent_in(&status) == Some(parent)
    };
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    processes.filter(is_child).map(Pid::from_raw).collect()
}

/// Returns the parent in the kernel's line of a process that runs; nothing of one that only waits to be reaped.
/// The process's name, in brackets, may hold anything.
fn parent_in(line: &str) -> Option<u32> {
    let (_, rest) = line.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let has_ended = matches!(fields.next()?, "Z" | "X");
    fields.next()?.parse().ok().filter(|_| !has_ended)
}

/// Time that processes may take to end once they are killed.
const KILL_TIMEOUT: Duration = Duration::from_secs(3);

/// Time between two looks for processes that are left.
const KILL_INTERVAL: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_of_a_process_is_found_whatever_its_name_is() {
        assert_eq!(parent_in("17 (sh) S 4 17 17 0"), Some(4));
        assert_eq!(parent_in("17 (a) R 9 (b) S 4 17 17 0"), Some(4));
        assert_eq!(parent_in("17 (sh"), None);
        assert_eq!(parent_in("17 (sh) Z 4 17 17 0"), None);
        let parent = std::os::unix::process::parent_id();
        assert!(children_of(parent).contains(&nix::unistd::getpid()));
    }
}
