//! Threads on one processor.

use std::io;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

/// Keeps the calling thread on one processor, counted from 0.
///
/// # Errors
/// There is no such processor, or this process may not use it.
pub(crate) fn pin_to_cpu(cpu: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu)?;
    Ok(sched_setaffinity(Pid::from_raw(0), &set)?)
}
