//! Completion channels, on which a program sleeps until a completion comes.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use roce_transport::Completion;

use crate::completion_queue::CompletionQueue;
use crate::driver::{Driver, Shard};
use crate::error::Error;
use crate::queue_state::reports::{Shared, Waiter};

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

impl CompletionChannel {
    pub(crate) fn new(driver: Arc<Driver>) -> Result<Self, Error> {
        let shared = Arc::new(Shared::new()?);
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

    /// Notes that the program has read bytes of the descriptor itself, as a sleep by read(2) does. It stays
    /// readable while reports wait.
    pub fn note_read(&self) {
        if self.driver.check_alive().is_ok() {
            self.shared.on_read();
        }
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
        self.driver.drive_until(self.shared.shards.mask(), deadline, self.as_fd(), || {
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
        let deadline = Instant::now().checked_add(timeout);
        let shards = self.shared.shards.mask();
        self.driver.drive_until(shards, deadline, self.as_fd(), reported)?;
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
        let mut shards: Vec<&Arc<Shard>> = Vec::with_capacity(channels.len());
        for channel in channels {
            for shard in channel.driver.shards(channel.shared.shards.mask()) {
                // Two channels may belong to one shard, which runs one round for both.
                if !shards.iter().any(|known| Arc::ptr_eq(known, shard)) {
                    shards.push(shard);
                }
            }
        }
        let _waiters: Vec<_> = channels.iter().map(|channel| Waiter::on(&channel.shared)).collect();
        let mut fds: Vec<_> = channels.iter().map(|channel| channel.as_fd()).collect();
        fds.push(beside);
        let reported = |channel: &&Self| !channel.shared.is_empty();
        Driver::drive_all_until(&shards, deadline, &fds, |beside_is_readable| {
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

impl CompletionQueue {
    /// Waits for the next completion without holding a thread: for tokio.
    ///
    /// Needs a queue that was made with a channel of its own.
    ///
    /// # Errors
    /// [`Error::NoChannel`] without a channel; [`Error::Forked`] in a child process.
    pub async fn next_async(&self, channel: &CompletionChannel) -> Result<Completion, Error> {
        if !self.reports_on(&channel.shared) {
            return Err(Error::NoChannel);
        }
        loop {
            if let Some(completion) = self.poll_one() {
                return Ok(completion);
            }
            self.arm(false);
            channel.wait_async().await?;
        }
    }
}

impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.as_fd()
    }
}

impl AsRawFd for CompletionChannel {
    fn as_raw_fd(&self) -> RawFd {
        self.shared.as_raw_fd()
    }
}
