//! What the shards of a device have in common.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use nix::sys::eventfd::{EfdFlags, EventFd};
use roce_io::process::Own;
use roce_transport::Instant;

use crate::port::Port;
use crate::process::fork;

/// What the shards of a device have in common.
#[derive(Debug)]
pub(super) struct Common {
    pub(super) port: Port,
    /// The beginning of the engines' clock. They have the same: queues keep times for several of them.
    pub(super) epoch: std::time::Instant,
    pub(super) generation: fork::Generation,
    pub(super) stopping: AtomicBool,
    /// Readable once the driver threads run no more rounds, although the process goes on.
    pub(super) thread_ended: Own<OwnedFd>,
    /// Longest time that a thread spins before it sleeps.
    pub(super) max_spin: Duration,
    /// The device has a general services queue pair.
    pub(super) has_general_services: AtomicBool,
}

impl Common {
    pub(super) fn new(port: Port, max_spin: Duration) -> io::Result<Self> {
        Ok(Self {
            port,
            epoch: std::time::Instant::now(),
            generation: fork::Generation::current(),
            stopping: AtomicBool::new(false),
            thread_ended: Own::make(|| EventFd::from_flags(EfdFlags::EFD_CLOEXEC))?.map(Into::into),
            max_spin,
            has_general_services: AtomicBool::new(false),
        })
    }

    pub(super) fn now(&self) -> Instant {
        instant_since(self.epoch, std::time::Instant::now())
    }
}

/// Converts an instant to a clock that begins at `epoch`.
pub(super) fn instant_since(epoch: std::time::Instant, at: std::time::Instant) -> Instant {
    let elapsed = at.saturating_duration_since(epoch);
    let nanos = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
    // One later than zero, which stands for "never" in the atomics of shards and queues.
    Instant::from_nanos(nanos.saturating_add(1))
}
