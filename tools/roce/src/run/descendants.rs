//! The processes that a program leaves behind.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpgid, getpgrp};
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
    all().len()
}

/// Sends a signal to all descendants of this process.
pub(crate) fn signal_all(signal: Signal) {
    send(signal, all());
}

/// Sends a signal to the descendants of this process that are not of its process group.
pub(crate) fn signal_other_groups(signal: Signal) {
    let own = Some(getpgrp());
    send(signal, all().into_iter().filter(|process| getpgid(Some(*process)).ok() != own));
}

fn send(signal: Signal, to: impl IntoIterator<Item = Pid>) {
    for process in to {
        // One that has ended since may be a grandchild whose number is free: numbers are given in turn.
        let _ = kill(process, signal);
    }
}

/// Returns the descendants of this process that run.
fn all() -> Vec<Pid> {
    let running: Vec<_> = running().collect();
    let mut found = Vec::new();
    let mut parents = vec![std::process::id()];
    while let Some(parent) = parents.pop() {
        for (child, _) in running.iter().filter(|(_, its)| *its == parent) {
            parents.push(child.cast_unsigned());
            found.push(Pid::from_raw(*child));
        }
    }
    found
}

/// Returns the children of a process that run.
fn children_of(parent: u32) -> Vec<Pid> {
    running().filter(|(_, its)| *its == parent).map(|(child, _)| Pid::from_raw(child)).collect()
}

/// Returns the processes that run, each with its parent.
fn running() -> impl Iterator<Item = (i32, u32)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    processes.filter_map(|process: i32| Some((process, parent_of(process.cast_unsigned())?)))
}

/// Returns the parent of a process that runs.
fn parent_of(process: u32) -> Option<u32> {
    parent_in(&fs::read_to_string(format!("/proc/{process}/stat")).ok()?)
}

/// Returns the parent in the kernel's line of a process that runs; nothing of one that only waits to be reaped.
/// The process's name, in brackets, may hold anything.
fn parent_in(line: &str) -> Option<u32> {
    let (_, rest) = line.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    let threads: u32 = fields.nth(15)?.parse().ok()?;
    // The state is that of the first thread, which may end before the others.
    let has_ended = matches!(state, "Z" | "X") && threads <= 1;
    (!has_ended).then_some(parent)
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
        let line = |start: &str, threads: u32| {
            format!("{start} 4 17 17 0 -1 4194560 9 0 0 0 1 2 0 0 20 0 {threads} 0 8")
        };
        for (start, threads, parent) in [
            ("17 (sh) S", 1, Some(4)),
            ("17 (a) R 9 (b) S", 1, Some(4)),
            ("17 (sh) Z", 1, None),
            ("17 (sh) X", 0, None),
            ("17 (its first thread has ended) Z", 2, Some(4)),
        ] {
            assert_eq!(parent_in(&line(start, threads)), parent, "{start}");
        }
        assert_eq!(parent_in("17 (sh"), None);
        let parent = std::os::unix::process::parent_id();
        assert!(children_of(parent).contains(&nix::unistd::getpid()));
    }
}
