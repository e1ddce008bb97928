//! The reports of a completion channel.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::ptr;
use std::sync::{PoisonError, Weak};

use tokio::sync::Notify;

use super::state::{QueueState, Report};
use super::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use super::sync::{Mutex, MutexGuard};
use crate::event_descriptor::EventDescriptor;
use crate::shard_set::GrowingShardSet;

/// The part that completion queues keep alive.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Counts the events in the list; used with its lock held.
    fd: EventDescriptor,
    events: Mutex<VecDeque<Weak<QueueState>>>,
    /// Wakes tasks; the descriptor is for programs with a loop of their own.
    pub(crate) reported: Notify,
    /// Callers in `wait`.
    waiters: AtomicUsize,
    /// The last report found a caller in `wait`.
    is_waited_on: AtomicBool,
    /// Completion queues that report here.
    queues: AtomicUsize,
    /// The shards of those queues, also of earlier ones: a caller in `wait` drives them.
    pub(crate) shards: GrowingShardSet,
}

impl Shared {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            fd: EventDescriptor::new()?,
            events: Mutex::default(),
            reported: Notify::new(),
            waiters: AtomicUsize::new(0),
            is_waited_on: AtomicBool::new(false),
            queues: AtomicUsize::new(0),
            shards: GrowingShardSet::default(),
        })
    }

    /// Notes a completion queue that reports here.
    pub(crate) fn on_queue_created(&self) {
        self.queues.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that such a queue is gone.
    pub(crate) fn on_queue_destroyed(&self) {
        self.queues.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns true if several completion queues report here.
    pub(crate) fn has_several_queues(&self) -> bool {
        self.queues.load(Ordering::Relaxed) > 1
    }

    fn events(&self) -> MutexGuard<'_, VecDeque<Weak<QueueState>>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports that a queue has a completion, unless the program has destroyed it; never blocks.
    pub(crate) fn notify(&self, queue: &QueueState) {
        {
            let mut events = self.events();
            // With the lock held, as `remove` takes it.
            if !queue.may_report() {
                return;
            }
            events.push_back(queue.weak());
            // With the lock held, so that a caller that takes the event finds it counted.
            self.fd.added();
        }
        self.reported.notify_one();
        if self.waiters.load(Ordering::Relaxed) > 0 {
            self.is_waited_on.store(true, Ordering::Relaxed);
        }
    }

    /// Removes the reports of a queue that is destroyed.
    pub(crate) fn remove(&self, queue: &QueueState) {
        let mut events = self.events();
        events.retain(|it| !ptr::eq(it.as_ptr(), queue));
        self.fd.removed(events.len());
    }

    /// Notes a report by the driver thread: unless a caller is in `wait`, the next report is not
    /// expected to find one either.
    pub(crate) fn on_unattended_notify(&self) {
        if self.waiters.load(Ordering::Relaxed) == 0 {
            self.is_waited_on.store(false, Ordering::Relaxed);
        }
    }

    /// Returns true if a caller is in `wait`, or was when the last report came and is expected to
    /// be again: such a caller runs rounds itself.
    pub(crate) fn is_waited_on(&self) -> bool {
        self.waiters.load(Ordering::Relaxed) > 0 || self.is_waited_on.load(Ordering::Relaxed)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.events().is_empty()
    }

    /// Notes that the program has read the descriptor.
    pub(crate) fn on_read(&self) {
        let events = self.events();
        self.fd.count_anew(events.len());
    }

    /// Takes the oldest report.
    pub(crate) fn take(&self) -> Option<Report> {
        loop {
            let mut events = self.events();
            let event = events.pop_front()?;
            // With the lock held: a thread that finds the list empty finds the descriptor unreadable.
            self.fd.removed(events.len());
            // None where a thread destroys the queue at this moment.
            if let Some(report) = Report::of(&event) {
                return Some(report);
            }
        }
    }
}

/// A caller in `wait`.
pub(crate) struct Waiter<'a>(&'a Shared);

impl<'a> Waiter<'a> {
    pub(crate) fn on(channel: &'a Shared) -> Self {
        channel.waiters.fetch_add(1, Ordering::Relaxed);
        Self(channel)
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.0.waiters.fetch_sub(1, Ordering::Relaxed);
    }
}

impl AsFd for Shared {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Shared {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}
