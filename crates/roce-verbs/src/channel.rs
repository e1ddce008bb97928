//! Completion channels, on which a program sleeps until a completion comes.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use nix::sys::eventfd::{EfdFlags, EventFd};
use tokio::sync::Notify;

use crate::completion_queue::{CompletionQueue, Inner as QueueInner, Report};
use crate::driver::Driver;
use crate::error::Error;

/// A channel on which completion queues report; as `ibv_comp_channel`.
///
/// Its file descriptor becomes readable when an armed queue gets a completion, so it fits into
/// `poll`, `epoll` and tokio. [`wait`](Self::wait) sleeps and drives the engine in the calling
/// thread, so that no other thread has to wake up first.
///
/// ```no_run
/// # use roce_verbs::{Device, DeviceConfig, Error};
/// # fn main() -> Result<(), Error> {
/// let device = Device::open("eth0", DeviceConfig::default())?;
/// let channel = device.create_completion_channel()?;
/// let cq = device.create_cq(16, Some(&channel))?;
/// cq.arm(false);
/// // ... post work ...
/// if let Some(ready) = channel.wait(None)? {
///     for completion in ready.poll_all() {
///         println!("{completion:?}");
///     }
///     ready.arm(false);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct CompletionChannel {
    shared: Arc<Shared>,
    driver: Arc<Driver>,
}

/// The part that completion queues keep alive.
#[derive(Debug)]
pub(crate) struct Shared {
    /// A semaphore that counts the events in the list.
    fd: EventFd,
    events: Mutex<VecDeque<Weak<QueueInner>>>,
    /// Wakes tasks; the descriptor is for programs with a loop of their own.
    reported: Notify,
    /// Callers in `wait`.
    waiters: AtomicUsize,
    /// The last report found a caller in `wait`.
    is_waited_on: AtomicBool,
    /// Completion queues that report here.
    queues: AtomicUsize,
}

impl Shared {
    pub(crate) fn new() -> nix::Result<Self> {
        // Blocking, as the kernel's descriptor is at first: the application changes that. No call of
        // this module blocks, since one on the semaphore stands for each event in the list.
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_SEMAPHORE;
        let fd = EventFd::from_value_and_flags(0, flags)?;
        Ok(Self {
            fd,
            events: Mutex::default(),
            reported: Notify::new(),
            waiters: AtomicUsize::new(0),
            is_waited_on: AtomicBool::new(false),
            queues: AtomicUsize::new(0),
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

    fn events(&self) -> MutexGuard<'_, VecDeque<Weak<QueueInner>>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports that a queue has a completion, unless the program has destroyed it; never blocks.
    pub(crate) fn notify(&self, queue: &QueueInner) {
        {
            let mut events = self.events();
            // With the lock held, as `remove` takes it.
            if !queue.may_report() {
                return;
            }
            events.push_back(queue.weak());
            // With the lock held, so that a caller that takes the event finds it counted. The counter
            // cannot overflow: it would take 2^64 events.
            let _written = self.fd.write(1);
        }
        self.reported.notify_one();
        if self.waiters.load(Ordering::Relaxed) > 0 {
            self.is_waited_on.store(true, Ordering::Relaxed);
        }
    }

    /// Removes the reports of a queue that is destroyed.
    pub(crate) fn remove(&self, queue: &QueueInner) {
        self.events().retain(|it| {
            let stays = !ptr::eq(it.as_ptr(), queue);
            if !stays {
                // It counts the reports in the list, so this does not wait.
                let _read = self.fd.read();
            }
            stays
        });
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

    fn is_empty(&self) -> bool {
        self.events().is_empty()
    }

    /// Takes the oldest report.
    pub(crate) fn take(&self) -> Option<Report> {
        loop {
            let mut events = self.events();
            let event = events.pop_front()?;
            // With the lock held: a thread that finds the list empty finds the descriptor unreadable.
            let _read = self.fd.read();
            // None where a thread destroys the queue at this moment.
            if let Some(report) = Report::of(&event) {
                return Some(report);
            }
        }
    }
}

impl CompletionChannel {
    pub(crate) fn new(driver: Arc<Driver>) -> Result<Self, Error> {
        let shared = Arc::new(Shared::new().map_err(io::Error::from)?);
        Ok(Self { shared, driver })
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Returns the next queue that reported, if there is one; never waits.
    ///
    /// In a child process after `fork`, which shares the descriptor with its parent, none reports.
    pub fn poll(&self) -> Option<CompletionQueue> {
        self.driver.check_alive().ok()?;
        let report = self.shared.take()?;
        Some(CompletionQueue::of_report(report, Arc::clone(&self.driver)))
    }

    /// Sleeps until an armed queue reports, and returns it; `None` after `timeout`.
    ///
    /// With `timeout` `None` it waits for ever. Meanwhile this thread drives the engine.
    ///
    /// # Errors
    /// [`Error::Forked`] in a child process; what `poll(2)` says otherwise.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Option<CompletionQueue>, Error> {
        let deadline = timeout.and_then(|span| Instant::now().checked_add(span));
        let _waiter = Waiter::on(&self.shared);
        let mut found = None;
        self.driver.drive_until(deadline, self.as_fd(), || {
            found = self.poll();
            found.is_some()
        })?;
        Ok(found)
    }

    /// Sleeps until a queue has reported, or `timeout` is over, and fetches no report: as
    /// [`wait`](Self::wait) otherwise. Returns true if a queue has reported.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_reported(&self, timeout: Duration) -> Result<bool, Error> {
        let _waiter = Waiter::on(&self.shared);
        let reported = || !self.shared.is_empty();
        self.driver.drive_until(Instant::now().checked_add(timeout), self.as_fd(), reported)?;
        Ok(reported())
    }

    /// Sleeps until a queue reports on any of `channels`, or `beside` becomes readable, or
    /// `timeout` is over. Meanwhile this thread drives the devices of all channels.
    ///
    /// For programs that use several devices, or wait for a socket too. [`poll`](Self::poll) returns
    /// the queues that reported.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_any(
        channels: &[&Self],
        beside: BorrowedFd<'_>,
        timeout: Option<Duration>,
    ) -> Result<(), Error> {
        let deadline = timeout.and_then(|span| Instant::now().checked_add(span));
        let mut drivers: Vec<&Driver> = Vec::with_capacity(channels.len());
        for channel in channels {
            // Two channels may belong to one device, which runs one round for both.
            if !drivers.iter().any(|driver| std::ptr::eq(*driver, &*channel.driver)) {
                drivers.push(&channel.driver);
            }
        }
        let _waiters: Vec<_> = channels.iter().map(|channel| Waiter::on(&channel.shared)).collect();
        let mut fds: Vec<_> = channels.iter().map(|channel| channel.as_fd()).collect();
        fds.push(beside);
        let reported = |channel: &&Self| !channel.shared.is_empty();
        Driver::drive_all_until(&drivers, deadline, &fds, |beside_is_readable| {
            beside_is_readable || channels.iter().any(reported)
        })
    }

    /// Waits as [`wait`](Self::wait) does, without holding a thread: for tokio or any
    /// other runtime. The device's own thread drives the engine meanwhile.
    ///
    /// # Errors
    /// [`Error::Forked`] in a child process.
    pub async fn wait_async(&self) -> Result<CompletionQueue, Error> {
        self.driver.check_alive()?;
        loop {
            if let Some(queue) = self.poll() {
                return Ok(queue);
            }
            // A report since the poll above has left its permit here.
            self.shared.reported.notified().await;
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

impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.as_fd()
    }
}

impl AsRawFd for CompletionChannel {
    fn as_raw_fd(&self) -> RawFd {
        self.shared.fd.as_raw_fd()
    }
}
