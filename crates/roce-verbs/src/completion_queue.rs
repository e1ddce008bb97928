//! Completion queues.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use roce_transport::{Completion, CompletionStatus, CqHandle, EventSource, Instant};

use crate::channel::{self, CompletionChannel};
use crate::driver::{Driver, INLINE_RECENT};
use crate::error::Error;
use crate::events::EventQueue;

/// Most completions of a queue.
pub(crate) const MAX_CQE: usize = 1 << 22;

/// A queue of completions; as `ibv_cq`.
///
/// Polling drives the engine: a program that polls makes progress without another thread. Cheap to clone; the queue lives until its last clone and its last queue
/// pair are gone.
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
#[derive(Clone, Debug)]
pub struct CompletionQueue {
    inner: Arc<Inner>,
    driver: Arc<Driver>,
}

/// The part that the engine fills and the application empties.
#[derive(Debug)]
pub(crate) struct Inner {
    handle: CqHandle,
    /// Written under the lock of the entries.
    capacity: AtomicUsize,
    /// A completion for the full queue takes the place of the oldest one.
    ignores_overrun: AtomicBool,
    entries: Mutex<VecDeque<Completion>>,
    /// Number of entries, read without a lock.
    waiting: AtomicUsize,
    armed: AtomicU8,
    /// What the queue was armed for when a completion that it held already was reported at once, and
    /// that report has not been withdrawn; written under the lock of the entries.
    early: AtomicU8,
    /// Time of the last arming or report, in nanoseconds of the device's clock; 0 if there was none.
    event_at: AtomicU64,
    /// Time of the last poll that ran a round while the queue was armed. As above.
    polled_at: AtomicU64,
    channel: Option<Arc<channel::Shared>>,
    /// The asynchronous events of its context.
    events: Arc<EventQueue>,
    this: Weak<Inner>,
}

/// The outcome of adding a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pushed {
    /// It is in the queue.
    Queued,
    /// It is in the queue, and the channel was notified.
    Notified,
    /// The queue is full.
    Full,
}

/// Kinds of completions that the queue reports on the channel.
mod armed {
    pub(super) const NOT: u8 = 0;
    pub(super) const SOLICITED: u8 = 1;
    pub(super) const NEXT: u8 = 2;
}

impl Inner {
    fn entries(&self) -> MutexGuard<'_, VecDeque<Completion>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the asynchronous events of its context.
    pub(crate) fn events(&self) -> &EventQueue {
        &self.events
    }

    /// Adds a completion.
    pub(crate) fn push(&self, completion: Completion, now: Instant) -> Pushed {
        let counts = completion.solicited || completion.status != CompletionStatus::Success;
        {
            let mut entries = self.entries();
            if entries.len() >= self.capacity.load(Ordering::Relaxed) {
                return Pushed::Full;
            }
            entries.push_back(completion);
            self.waiting.store(entries.len(), Ordering::Release);
        }
        let least = if counts { armed::SOLICITED } else { armed::NEXT };
        if self.notify_if_armed(least, now) { Pushed::Notified } else { Pushed::Queued }
    }

    /// Removes the oldest completion if the queue ignores overruns; returns false otherwise. The caller
    /// holds the engine's lock, under which alone completions are added.
    #[cold]
    pub(crate) fn drop_oldest(&self) -> bool {
        let ignores = self.ignores_overrun.load(Ordering::Relaxed);
        if ignores {
            let mut entries = self.entries();
            entries.pop_front();
            self.waiting.store(entries.len(), Ordering::Release);
        }
        ignores
    }

    /// Returns true if a completion for `handle` may bypass the queue and be returned to the caller
    /// that polls it: it is for this queue, is older than all entries, and no report of it is armed.
    /// The caller holds the engine's lock, under which alone completions are added. A thread that
    /// arms the queue meanwhile arms it for the next completion.
    pub(crate) fn can_bypass_queue(&self, handle: CqHandle) -> bool {
        // Without a channel arming has no effect and is never undone.
        let is_awaited = self.channel.is_some() && self.armed.load(Ordering::Acquire) != armed::NOT;
        self.handle == handle && !is_awaited && self.waiting.load(Ordering::Acquire) == 0
    }

    /// Returns true if the next completion, or the next solicited one, is to be reported on a channel
    /// where other queues report, too.
    pub(crate) fn is_armed_beside_others(&self) -> bool {
        let shares = |channel: &Arc<channel::Shared>| channel.has_several_queues();
        self.armed.load(Ordering::Relaxed) != armed::NOT
            && self.channel.as_ref().is_some_and(shares)
    }

    /// Notifies the channel if armed for at least `least`, and disarms; returns true if it did.
    fn notify_if_armed(&self, least: u8, now: Instant) -> bool {
        let Some(channel) = &self.channel else { return false };
        let fires = self
            .armed
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| {
                (state >= least).then_some(armed::NOT)
            })
            .is_ok();
        if fires {
            self.event_at.store(now.as_nanos(), Ordering::Relaxed);
            channel.notify(Weak::clone(&self.this));
        }
        fires
    }

    /// The part of [`CompletionQueue::arm`] without the driver.
    fn arm(&self, state: u8, now: Instant) {
        self.event_at.store(now.as_nanos(), Ordering::Relaxed);
        let entries = self.entries();
        // An arming for more is not narrowed by one for less.
        self.armed.fetch_max(state, Ordering::SeqCst);
        let is_early = !entries.is_empty() && self.notify_if_armed(armed::NOT + 1, now);
        self.early.store(if is_early { state } else { armed::NOT }, Ordering::Relaxed);
    }

    /// Withdraws the report of completions that the queue held when it was armed, and arms it again,
    /// as the program has polled them all before it fetched the report. A program that arms first
    /// and then polls would else be woken for nothing; some take each report for one completion.
    #[cold]
    fn withdraw_early_report(&self) {
        let state = self.early.swap(armed::NOT, Ordering::Relaxed);
        let Some(channel) = &self.channel else { return };
        if channel.withdraw(&self.this) {
            self.armed.fetch_max(state, Ordering::SeqCst);
        }
    }

    /// Notes that completions were removed.
    #[inline]
    fn on_removed(&self, entries: &VecDeque<Completion>) {
        self.waiting.store(entries.len(), Ordering::Release);
        if entries.is_empty() && self.early.load(Ordering::Relaxed) != armed::NOT {
            self.withdraw_early_report();
        }
    }

    /// Notes that the caller polls at `now` and runs a round.
    #[inline]
    pub(crate) fn note_polled(&self, now: Instant) {
        if self.armed.load(Ordering::Relaxed) != armed::NOT {
            self.polled_at.store(now.as_nanos(), Ordering::Relaxed);
        }
    }

    /// Returns true if the caller may sleep on the channel's descriptor, so that the driver thread
    /// alone can report to it.
    ///
    /// That is so from arming until the report, and for [`INLINE_RECENT`] after it, in which the
    /// caller polls and arms again. It is not so if the caller goes on polling after it has armed,
    /// or waits for the channel's reports in `wait`.
    pub(crate) fn relies_on_thread(&self, now: Instant) -> bool {
        let Some(channel) = &self.channel else { return false };
        let is_armed = self.armed.load(Ordering::SeqCst) != armed::NOT;
        let at = |it: &AtomicU64| Instant::from_nanos(it.load(Ordering::Relaxed));
        let (event, polled) = (at(&self.event_at), at(&self.polled_at));
        if channel.is_waited_on() || event == Instant::default() {
            return false;
        }
        if is_armed { polled < event + INLINE_RECENT } else { now < event + INLINE_RECENT }
    }

    /// Returns the time of the last report or arming.
    pub(crate) fn notified_at(&self) -> Instant {
        Instant::from_nanos(self.event_at.load(Ordering::Relaxed))
    }

    /// Notes that the driver thread has notified the channel.
    pub(crate) fn on_unattended_notify(&self) {
        if let Some(channel) = &self.channel {
            channel.on_unattended_notify();
        }
    }

    #[inline]
    fn pop(&self) -> Option<Completion> {
        if self.waiting.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut entries = self.entries();
        let completion = entries.pop_front();
        self.on_removed(&entries);
        completion
    }

    /// Passes at most `max` completions to `each`, oldest first, and returns how many.
    #[inline]
    fn take(&self, max: usize, each: &mut impl FnMut(Completion)) -> usize {
        if self.waiting.load(Ordering::Acquire) == 0 {
            return 0;
        }
        let mut entries = self.entries();
        let count = entries.len().min(max);
        entries.drain(..count).for_each(each);
        self.on_removed(&entries);
        count
    }

    /// Removes the completions of a queue pair that was destroyed or reset.
    pub(crate) fn remove_qp(&self, qpn: roce_wire::Qpn) {
        let mut entries = self.entries();
        entries.retain(|completion| completion.qpn != qpn);
        self.waiting.store(entries.len(), Ordering::Release);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.events.remove(EventSource::CompletionQueue(self.handle));
        if let Some(channel) = &self.channel {
            channel.on_queue_destroyed();
        }
    }
}

impl CompletionQueue {
    pub(crate) fn new(
        driver: Arc<Driver>,
        events: Arc<EventQueue>,
        handle: CqHandle,
        capacity: usize,
        channel: Option<&CompletionChannel>,
    ) -> Self {
        let inner = Arc::new_cyclic(|this| Inner {
            handle,
            capacity: AtomicUsize::new(capacity),
            ignores_overrun: AtomicBool::new(false),
            entries: Mutex::new(VecDeque::with_capacity(capacity.min(4096))),
            waiting: AtomicUsize::new(0),
            armed: AtomicU8::new(armed::NOT),
            early: AtomicU8::new(armed::NOT),
            event_at: AtomicU64::new(0),
            polled_at: AtomicU64::new(0),
            channel: channel.map(|channel| Arc::clone(channel.shared())),
            events,
            this: Weak::clone(this),
        });
        if let Some(channel) = &inner.channel {
            channel.on_queue_created();
            driver.add_notifying(&inner);
        }
        Self { inner, driver }
    }

    pub(crate) fn from_parts(inner: Arc<Inner>, driver: Arc<Driver>) -> Self {
        Self { inner, driver }
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    pub(crate) fn belongs_to(&self, driver: &Arc<Driver>) -> bool {
        Arc::ptr_eq(&self.driver, driver)
    }

    /// Returns its name in [`AsyncEvent::CqError`](crate::AsyncEvent::CqError), which no other queue
    /// of the device has.
    pub fn handle(&self) -> CqHandle {
        self.inner.handle
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

    /// Changes the number of completions that fit; as `ibv_resize_cq`.
    ///
    /// # Errors
    /// [`Error::QueueCapacity`] beyond 1 ..= 2^22; [`Error::QueueInUse`] below the number of
    /// completions that the queue holds; [`Error::Forked`].
    pub fn resize(&self, capacity: usize) -> Result<(), Error> {
        self.driver.check_alive()?;
        if capacity == 0 || capacity > MAX_CQE {
            return Err(Error::QueueCapacity { requested: capacity, max: MAX_CQE });
        }
        let entries = self.inner.entries();
        if capacity < entries.len() {
            return Err(Error::QueueInUse { requested: capacity, held: entries.len() });
        }
        self.inner.capacity.store(capacity, Ordering::Relaxed);
        Ok(())
    }

    /// Appends at most `max` completions to `into`, oldest first, and returns how many.
    ///
    /// If there are none, this thread runs one round of the engine, unless another thread does.
    /// In a child process after `fork` there are none.
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
            let driven = self.driver.drive_inline(Some(&self.inner));
            if let Some(completion) = driven.completion {
                each(completion);
                count = 1;
            }
            if driven.did_work {
                count += self.inner.take(max - count, &mut each);
            }
        } else {
            // A poll releases held posts whether it runs a round or not.
            self.driver.send_held_posts();
        }
        count
    }

    /// Returns the oldest completion, if there is one; as [`poll`](Self::poll).
    pub fn poll_one(&self) -> Option<Completion> {
        let mut completion = self.inner.pop();
        if completion.is_none() {
            let driven = self.driver.drive_inline(Some(&self.inner));
            completion = driven.completion;
            if completion.is_none() && driven.did_work {
                completion = self.inner.pop();
            }
        } else {
            // A poll releases held posts whether it runs a round or not.
            self.driver.send_held_posts();
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
    /// misses none. If the program polls them all before it fetches that report, the report is
    /// withdrawn and the queue stays armed. Without a channel this does nothing.
    pub fn arm(&self, solicited_only: bool) {
        // The caller is about to sleep.
        self.driver.send_held_posts();
        if self.inner.channel.is_some() {
            let state = if solicited_only { armed::SOLICITED } else { armed::NEXT };
            self.driver.arm(&self.inner, |now| self.inner.arm(state, now));
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

    /// Waits for the next completion without holding a thread: for tokio.
    ///
    /// Needs a queue that was made with a channel of its own.
    ///
    /// # Errors
    /// [`Error::NoChannel`] without a channel; [`Error::Forked`] in a child process.
    pub async fn next_async(&self, channel: &CompletionChannel) -> Result<Completion, Error> {
        let ours = self.inner.channel.as_ref();
        if !ours.is_some_and(|ours| Arc::ptr_eq(ours, channel.shared())) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use roce_transport::CompletionOperation;

    fn queue(handle: u32) -> Inner {
        queue_on(handle, None)
    }

    fn queue_on(handle: u32, channel: Option<Arc<channel::Shared>>) -> Inner {
        channel.iter().for_each(|channel| channel.on_queue_created());
        Inner {
            handle: CqHandle(handle),
            capacity: AtomicUsize::new(4),
            ignores_overrun: AtomicBool::new(false),
            entries: Mutex::default(),
            waiting: AtomicUsize::new(0),
            armed: AtomicU8::new(armed::NOT),
            early: AtomicU8::new(armed::NOT),
            event_at: AtomicU64::new(0),
            polled_at: AtomicU64::new(0),
            channel,
            events: Arc::new(EventQueue::new().unwrap()),
            this: Weak::new(),
        }
    }

    fn completion(wr_id: u64) -> Completion {
        Completion {
            wr_id,
            qpn: roce_wire::Qpn::GSI,
            status: CompletionStatus::Success,
            operation: CompletionOperation::Send,
            byte_len: 0,
            immediate: None,
            invalidated_key: None,
            source_qpn: None,
            is_over_ipv6: false,
            solicited: false,
        }
    }

    #[test]
    fn a_completion_bypasses_its_own_queue_alone_and_none_that_is_older() {
        let queue = queue(1);
        assert!(queue.can_bypass_queue(CqHandle(1)));
        assert!(!queue.can_bypass_queue(CqHandle(2)), "it is for another queue");
        assert_eq!(queue.push(completion(7), Instant::from_nanos(1)), Pushed::Queued);
        assert!(!queue.can_bypass_queue(CqHandle(1)), "an older one waits");
        assert_eq!(queue.pop().map(|it| it.wr_id), Some(7));
        assert!(queue.can_bypass_queue(CqHandle(1)));
        queue.armed.store(armed::NEXT, Ordering::Release);
        assert!(queue.can_bypass_queue(CqHandle(1)), "there is no channel to report it");
    }

    #[test]
    fn a_full_queue_that_ignores_overruns_keeps_the_newest_completions() {
        let queue = queue(1);
        for id in 1..=4 {
            assert_eq!(queue.push(completion(id), micros(1)), Pushed::Queued);
        }
        assert_eq!(queue.push(completion(5), micros(1)), Pushed::Full);
        assert!(!queue.drop_oldest(), "an overrun is an error");
        queue.ignores_overrun.store(true, Ordering::Relaxed);
        assert_eq!(queue.push(completion(5), micros(1)), Pushed::Full);
        assert!(queue.drop_oldest());
        assert_eq!(queue.push(completion(5), micros(1)), Pushed::Queued);
        let ids: Vec<_> = std::iter::from_fn(|| queue.pop()).map(|it| it.wr_id).collect();
        assert_eq!(ids, [2, 3, 4, 5]);
    }

    #[test]
    fn a_queue_is_armed_beside_others_only_while_its_channel_serves_another() {
        let channel = Arc::new(channel::Shared::new().unwrap());
        let [one, other] = [1, 2].map(|handle| queue_on(handle, Some(Arc::clone(&channel))));
        assert!(!one.is_armed_beside_others(), "not armed");
        one.armed.store(armed::NEXT, Ordering::Relaxed);
        assert!(one.is_armed_beside_others() && !other.is_armed_beside_others());
        drop(other);
        assert!(!one.is_armed_beside_others());
    }

    #[test]
    fn a_completion_that_a_channel_is_to_report_never_bypasses_the_queue() {
        let queue = queue_on(1, Some(Arc::new(channel::Shared::new().unwrap())));
        assert!(queue.can_bypass_queue(CqHandle(1)), "it is not armed");
        for asked_for in [armed::SOLICITED, armed::NEXT] {
            queue.armed.store(asked_for, Ordering::Release);
            assert!(!queue.can_bypass_queue(CqHandle(1)));
        }
    }

    const fn micros(count: u64) -> Instant {
        Instant::from_nanos(count * 1000)
    }

    fn queue_in_arc() -> (Arc<Inner>, Arc<channel::Shared>) {
        let channel = Arc::new(channel::Shared::new().unwrap());
        let make = |this: &Weak<Inner>| {
            let mut queue = queue_on(1, Some(Arc::clone(&channel)));
            queue.this = Weak::clone(this);
            queue
        };
        (Arc::new_cyclic(make), channel)
    }

    fn queue_with_channel() -> (Inner, Arc<channel::Shared>) {
        let channel = Arc::new(channel::Shared::new().unwrap());
        (queue_on(1, Some(Arc::clone(&channel))), channel)
    }

    #[test]
    fn a_queue_that_is_armed_with_completions_reports_them_at_once_unless_they_are_polled() {
        let (queue, channel) = queue_in_arc();
        let reports = || std::iter::from_fn(|| channel.take()).count();
        queue.push(completion(1), micros(1));
        queue.push(completion(2), micros(1));
        queue.arm(armed::NEXT, micros(2));
        assert_eq!(reports(), 1, "a program that sleeps now misses nothing");
        queue.arm(armed::NEXT, micros(3));
        assert!(queue.pop().is_some());
        assert_eq!(reports(), 1, "one is left");
        queue.arm(armed::NEXT, micros(4));
        assert!(queue.pop().is_some());
        assert_eq!(reports(), 0, "all were polled first");
        assert_eq!(queue.push(completion(3), micros(5)), Pushed::Notified, "it stays armed");
        assert_eq!(reports(), 1);
        assert!(queue.pop().is_some());
        assert_eq!(queue.push(completion(4), micros(6)), Pushed::Queued, "for one report");
    }

    #[test]
    fn a_caller_relies_on_the_thread_from_arming_until_a_moment_after_the_report() {
        let (queue, channel) = queue_with_channel();
        assert!(!queue.relies_on_thread(micros(1)), "it was never armed");
        queue.arm(armed::NEXT, micros(10));
        // Programs poll once more before they sleep.
        queue.note_polled(micros(11));
        for now in [10, 1_000, 1_000_000] {
            assert!(queue.relies_on_thread(micros(now)), "armed, {now}");
        }
        assert_eq!(queue.push(completion(1), micros(2_000_000)), Pushed::Notified);
        channel.on_unattended_notify();
        let recent = INLINE_RECENT.as_micros() as u64;
        assert!(queue.relies_on_thread(micros(2_000_000 + recent - 1)), "it may arm again");
        assert!(!queue.relies_on_thread(micros(2_000_000 + recent)));
    }

    #[test]
    fn a_caller_that_goes_on_polling_after_it_has_armed_does_not_rely_on_the_thread() {
        let (queue, _channel) = queue_with_channel();
        queue.arm(armed::NEXT, micros(10));
        let later = micros(10) + INLINE_RECENT;
        queue.note_polled(later);
        assert!(!queue.relies_on_thread(later));
        queue.arm(armed::NEXT, later);
        assert!(queue.relies_on_thread(later), "it armed anew");
    }

    #[test]
    fn a_caller_whose_reports_come_while_it_is_in_wait_does_not_rely_on_the_thread() {
        let (queue, channel) = queue_with_channel();
        queue.arm(armed::NEXT, micros(10));
        {
            let _waiter = channel::Waiter::on(&channel);
            assert!(!queue.relies_on_thread(micros(11)), "it is in wait");
            assert_eq!(queue.push(completion(1), micros(12)), Pushed::Notified);
            channel.on_unattended_notify();
        }
        assert!(queue.pop().is_some());
        queue.arm(armed::NEXT, micros(13));
        assert!(!queue.relies_on_thread(micros(13)), "it is expected to wait again");
        // It sleeps on the descriptor this time: the report finds no caller in wait.
        assert_eq!(queue.push(completion(2), micros(5_000)), Pushed::Notified);
        channel.on_unattended_notify();
        assert!(queue.pop().is_some());
        queue.arm(armed::NEXT, micros(5_001));
        assert!(queue.relies_on_thread(micros(5_001)));
    }
}
