//! Completion queues.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use roce_transport::{Completion, CqHandle};

use crate::driver::Driver;
use crate::error::Error;
use crate::events::EventQueue;
use crate::queue_state::{QueueState, Report, armed, reports};

/// Most completions of a queue.
pub(crate) const MAX_CQE: usize = 1 << 22;

/// A queue of completions; as `ibv_cq`.
///
/// Polling drives the engine: a program that polls makes progress without another thread. Cheap to
/// clone; the queue lives until its last clone and its last queue pair are gone. Then its reports
/// that were not fetched are gone too.
///
/// ```no_run
/// # use roce_verbs::{Device, DeviceConfig, Error};
/// # fn main() -> Result<(), Error> {
/// let device = Device::open("eth0", DeviceConfig::default())?;
/// let cq = device.create_cq(64, None)?;
/// while let Some(completion) = cq.poll_one() {
///     println!("{completion:?}");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct CompletionQueue {
    inner: Arc<QueueState>,
    driver: Arc<Driver>,
}

impl Clone for CompletionQueue {
    fn clone(&self) -> Self {
        self.inner.users.fetch_add(1, Ordering::Relaxed);
        Self { inner: Arc::clone(&self.inner), driver: Arc::clone(&self.driver) }
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        // A child after `fork` shares the descriptors with its parent, and may inherit held locks.
        if self.driver.check_alive().is_ok() && self.inner.remove_user() {
            self.driver.remove_queue(self.inner.handle());
        }
    }
}

impl CompletionQueue {
    pub(crate) fn new(
        driver: Arc<Driver>,
        events: Arc<EventQueue>,
        handle: CqHandle,
        capacity: usize,
        channel: Option<&Arc<reports::Shared>>,
    ) -> Result<Self, Error> {
        let channel = channel.cloned();
        let home = driver.home_of_next_queue();
        let slots = Arc::clone(driver.slots());
        let inner = Arc::new_cyclic(|this| {
            QueueState::new(this, handle, home, capacity, channel, events, slots)
        });
        let queue = Self { inner, driver };
        queue.inner.reserve(capacity).map_err(|_| Error::OutOfMemory)?;
        queue.driver.add_queue(&queue.inner, home);
        Ok(queue)
    }

    /// Returns the queue of a report that the program fetches.
    pub(crate) fn of_report(report: Report, driver: Arc<Driver>) -> Self {
        Self { inner: report.fetch(), driver }
    }

    /// Returns true if the queue reports on this channel.
    pub(crate) fn reports_on(&self, channel: &Arc<reports::Shared>) -> bool {
        self.inner.channel.as_ref().is_some_and(|ours| Arc::ptr_eq(ours, channel))
    }

    pub(crate) fn inner(&self) -> &Arc<QueueState> {
        &self.inner
    }

    pub(crate) fn belongs_to(&self, driver: &Arc<Driver>) -> bool {
        Arc::ptr_eq(&self.driver, driver)
    }

    /// Returns its name in [`AsyncEvent::CqError`](crate::AsyncEvent::CqError), which no other queue
    /// of the device has.
    pub fn handle(&self) -> CqHandle {
        self.inner.handle()
    }

    /// Returns the number of completions that fit.
    pub fn capacity(&self) -> usize {
        self.inner.capacity.load(Ordering::Relaxed)
    }

    /// Lets each completion for the full queue take the place of the oldest one, which is lost; as
    /// `IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN`. Lost ones are counted as `overwritten_completions`.
    ///
    /// By default the first completion that does not fit raises
    /// [`AsyncEvent::CqError`](crate::AsyncEvent::CqError) and ends the queue pairs of the queue.
    pub fn ignore_overrun(&self) {
        self.inner.ignores_overrun.store(true, Ordering::Relaxed);
    }

    /// Takes a program's wish for fewer events of the queue, each for several completions, as the advice that it is;
    /// as `ibv_modify_cq`. It changes nothing: an event here is a write to a descriptor, no interrupt, and the next one
    /// comes only once the program has armed the queue again. Wishes are counted as `cq_moderation_requests`.
    ///
    /// # Errors
    /// [`Error::Forked`].
    pub fn advise_moderation(&self) -> Result<(), Error> {
        self.driver.engine()?.count_call("cq_moderation_requests");
        Ok(())
    }

    /// Returns the number of completions that the queue holds; in a child process after `fork` none.
    pub fn held(&self) -> usize {
        // A thread that the child does not have may hold the lock.
        if self.driver.check_alive().is_ok() { self.inner.entries().list.len() } else { 0 }
    }

    /// Changes the number of completions that fit; as `ibv_resize_cq`.
    ///
    /// # Errors
    /// [`Error::QueueCapacity`] beyond 1 ..= 2^22; [`Error::QueueInUse`] below the number of
    /// completions that the queue holds; [`Error::OutOfMemory`]; [`Error::Forked`].
    pub fn resize(&self, capacity: usize) -> Result<(), Error> {
        self.driver.check_alive()?;
        if capacity == 0 || capacity > MAX_CQE {
            return Err(Error::QueueCapacity { requested: capacity, max: MAX_CQE });
        }
        let mut entries = self.inner.entries();
        let held = entries.list.len();
        if capacity < held {
            return Err(Error::QueueInUse { requested: capacity, held });
        }
        entries.list.try_reserve_exact(capacity - held).map_err(|_| Error::OutOfMemory)?;
        self.inner.capacity.store(capacity, Ordering::Relaxed);
        Ok(())
    }

    /// Appends at most `max` completions to `into`, oldest first, and returns how many.
    ///
    /// If there are none, this thread runs one round of the engine, unless another thread does. Where the
    /// queue pairs of the queue are in several shards of the device, it runs one of each.
    /// In a child process after `fork` there are none.
    ///
    /// The completion of a WRITE may come up to 60 µs late, together with a WRITE of the peer, for
    /// a program that waits for both in turn, the second one by reading its memory: while it polls,
    /// it receives that WRITE itself. A queue with a channel is not delayed, nor is a caller that
    /// polls several queues.
    ///
    /// An empty poll returns at once, with two exceptions. Now and then it yields the processor.
    /// Where a yield has cost a time slice, since other threads use the processor up, polls of a
    /// caller that does nothing but poll block instead: until a frame comes or a timer is due, at
    /// most 500 µs. Delayed ACKs and held posts leave before that. A yield would keep such a caller
    /// for a time slice of each other thread, a few milliseconds. A caller that spends more than
    /// 5 µs between its polls is never blocked. A caller that does other work in less time may do
    /// it up to 500 µs later.
    pub fn poll(&self, into: &mut Vec<Completion>, max: usize) -> usize {
        self.poll_with(max, |completion| into.push(completion))
    }

    /// As [`poll`](Self::poll), and passes each completion to `each`, which must not use the queue.
    ///
    /// ```no_run
    /// /// Stores the numbers of at most as many completed requests as there is room for.
    /// fn completed(queue: &roce_verbs::CompletionQueue, ids: &mut [u64]) -> usize {
    ///     let (max, mut room) = (ids.len(), ids.iter_mut());
    ///     queue.poll_with(max, |it| *room.next().expect("at most that many") = it.wr_id)
    /// }
    /// ```
    pub fn poll_with(&self, max: usize, mut each: impl FnMut(Completion)) -> usize {
        let observer = &self.driver.device().observer;
        let mut each = |completion| {
            observer.polled(&completion);
            each(completion);
        };
        let mut count = self.inner.take(max, &mut each);
        if count == 0 && max > 0 {
            let driven = self.driver.poll_queue(&self.inner);
            if let Some(completion) = driven.completion {
                each(completion);
                count = 1;
            }
            if driven.did_work {
                count += self.inner.take(max - count, &mut each);
            }
        } else {
            // A poll releases held posts whether it runs a round or not.
            self.driver.send_held_posts(self.inner.shards.mask());
        }
        count
    }

    /// Returns the oldest completion, if there is one; as [`poll`](Self::poll).
    pub fn poll_one(&self) -> Option<Completion> {
        let mut completion = self.inner.pop();
        if completion.is_none() {
            let driven = self.driver.poll_queue(&self.inner);
            completion = driven.completion;
            if completion.is_none() && driven.did_work {
                completion = self.inner.pop();
            }
        } else {
            // A poll releases held posts whether it runs a round or not.
            self.driver.send_held_posts(self.inner.shards.mask());
        }
        let completion = completion?;
        self.driver.device().observer.polled(&completion);
        Some(completion)
    }

    /// Returns all completions that are in the queue now.
    pub fn poll_all(&self) -> Vec<Completion> {
        let mut all = Vec::new();
        self.poll(&mut all, self.capacity());
        all
    }

    /// Requests one report on the channel: at the next completion, or, with `solicited_only`, at the
    /// next one that is solicited or failed.
    ///
    /// A queue that already holds completions reports at once, so a program that arms and sleeps
    /// misses none. The exception is a program that has fetched a report and has not polled since: the
    /// report has told it of those completions. If it then polls some of them, the others are reported.
    ///
    /// A report stays until a thread fetches it, or the queue is gone. So a report may find the queue
    /// empty, where another thread has polled it, or where the program has polled before it fetched the
    /// report. Without a channel this does nothing.
    pub fn arm(&self, solicited_only: bool) {
        // The caller is about to sleep.
        self.driver.send_held_posts(self.inner.shards.mask());
        if self.inner.channel.is_some() {
            let state = if solicited_only { armed::SOLICITED } else { armed::NEXT };
            self.driver.arm(&self.inner, |now| self.inner.arm(state, now));
        }
    }

    /// Takes the reports of the queue that were not fetched off the channel, and its asynchronous events
    /// off those of the context. None follows. This happens by itself when the last clone is gone; a
    /// program that destroys a queue while other threads wait for events calls this first.
    pub fn end_reports(&self) {
        if self.driver.check_alive().is_ok() {
            self.inner.end_reports();
        }
    }

    /// Waits for the next completion by polling, at most until `timeout` is over.
    ///
    /// This has the lowest latency. With [`Duration::MAX`] it waits for ever.
    pub fn spin_wait(&self, timeout: Duration) -> Option<Completion> {
        // A deadline beyond the range of the clock never comes.
        let deadline = std::time::Instant::now().checked_add(timeout);
        loop {
            if let Some(completion) = self.poll_one() {
                return Some(completion);
            }
            if deadline.is_some_and(|at| std::time::Instant::now() >= at) {
                return None;
            }
        }
    }
}
