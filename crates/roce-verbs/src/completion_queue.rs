//! Completion queues.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use roce_transport::{AsyncEvent, Completion, CompletionStatus, CqHandle, EventSource, Instant};

use crate::channel::{self, CompletionChannel};
use crate::driver::{Driver, INLINE_RECENT};
use crate::error::Error;
use crate::events::EventQueue;

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
    entries: Mutex<Entries>,
    /// Number of entries, read without a lock.
    waiting: AtomicUsize,
    /// Written under the lock of the entries, except by a report.
    armed: AtomicU8,
    /// Number of [`CompletionQueue`]s.
    users: AtomicUsize,
    /// The queue reports nothing any more: see [`CompletionQueue::end_reports`].
    is_ended: AtomicBool,
    /// Time of the last arming or report, in nanoseconds of the device's clock; 0 if there was none.
    event_at: AtomicU64,
    /// Time of the last poll that ran a round while the queue was armed. As above.
    polled_at: AtomicU64,
    channel: Option<Arc<channel::Shared>>,
    /// The asynchronous events of its context.
    events: Arc<EventQueue>,
    this: Weak<Inner>,
}

/// The completions of a queue.
#[derive(Debug, Default)]
struct Entries {
    list: VecDeque<Completion>,
    /// There are completions that the program has not been told of: since it fetched the last report,
    /// one was added, or a poll has left some.
    has_news: bool,
    /// The queue was armed without a report, although it held completions, as the program had just been
    /// told of them all. A poll that leaves some reports those.
    is_report_owed: bool,
}

/// A report of a queue, which counts as one of its users.
#[derive(Debug)]
pub(crate) struct Report(Arc<Inner>);

impl Report {
    /// Returns the report of a queue that is not destroyed.
    pub(crate) fn of(queue: &Weak<Inner>) -> Option<Self> {
        queue.upgrade().filter(|queue| queue.may_report() && queue.add_user()).map(Self)
    }
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
    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a pointer to the queue as long as anything keeps it alive.
    pub(crate) fn weak(&self) -> Weak<Self> {
        Weak::clone(&self.this)
    }

    /// Adds a completion.
    pub(crate) fn push(&self, completion: Completion, now: Instant) -> Pushed {
        let counts = completion.solicited || completion.status != CompletionStatus::Success;
        {
            let mut entries = self.entries();
            if entries.list.len() >= self.capacity.load(Ordering::Relaxed) {
                return Pushed::Full;
            }
            entries.list.push_back(completion);
            entries.has_news = true;
            self.waiting.store(entries.list.len(), Ordering::Release);
        }
        let least = if counts { armed::SOLICITED } else { armed::NEXT };
        if self.notify_if_armed(least, Some(now)) { Pushed::Notified } else { Pushed::Queued }
    }

    /// Removes the oldest completion if the queue ignores overruns; returns false otherwise. The caller
    /// holds the engine's lock, under which alone completions are added.
    #[cold]
    pub(crate) fn drop_oldest(&self) -> bool {
        let ignores = self.ignores_overrun.load(Ordering::Relaxed);
        if ignores {
            let mut entries = self.entries();
            entries.list.pop_front();
            self.waiting.store(entries.list.len(), Ordering::Release);
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

    /// Notifies the channel if armed for at least `least`, and disarms; returns true if it did. `now` is
    /// left out where the caller does not know it, just after the queue was armed.
    fn notify_if_armed(&self, least: u8, now: Option<Instant>) -> bool {
        let Some(channel) = &self.channel else { return false };
        let fires = self
            .armed
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| {
                (state >= least).then_some(armed::NOT)
            })
            .is_ok();
        if fires {
            if let Some(now) = now {
                self.event_at.store(now.as_nanos(), Ordering::Relaxed);
            }
            channel.notify(self);
        }
        fires
    }

    /// The part of [`CompletionQueue::arm`] without the driver.
    ///
    /// A report that a thread may have seen is never taken back. So whether completions that the queue
    /// holds are reported at once is decided here: if the program has been told of all of them and has
    /// not polled since, it arms before it polls, and a report would wake it for nothing. Some programs
    /// take each report for one completion (perftest).
    fn arm(&self, state: u8, now: Instant) {
        self.event_at.store(now.as_nanos(), Ordering::Relaxed);
        let mut entries = self.entries();
        // An arming for more is not narrowed by one for less.
        self.armed.fetch_max(state, Ordering::SeqCst);
        let holds_completions = !entries.list.is_empty();
        entries.is_report_owed = holds_completions && !entries.has_news;
        if holds_completions && entries.has_news {
            self.notify_if_armed(armed::NOT + 1, Some(now));
        }
    }

    /// Notes that the program has fetched a report: it knows of the completions in the queue now.
    fn on_report_fetched(&self) {
        self.entries().has_news = false;
    }

    /// Notes that completions were removed.
    #[inline]
    fn on_removed(&self, entries: &mut Entries) {
        let left = entries.list.len();
        self.waiting.store(left, Ordering::Release);
        entries.has_news = left != 0;
        if std::mem::take(&mut entries.is_report_owed) && left != 0 {
            self.notify_if_armed(armed::NOT + 1, None);
        }
    }

    /// Returns true if the queue has a [`CompletionQueue`].
    pub(crate) fn is_used(&self) -> bool {
        self.users.load(Ordering::Acquire) > 0
    }

    /// Counts another [`CompletionQueue`], unless the last one is gone.
    fn add_user(&self) -> bool {
        let more = |users| (users > 0).then_some(users + 1);
        self.users.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
    }

    /// Takes a [`CompletionQueue`] off the count; the last one ends the reports.
    fn remove_user(&self) {
        if self.users.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.end_reports();
        }
    }

    /// Returns false once the program has begun to destroy the queue.
    pub(crate) fn may_report(&self) -> bool {
        !self.is_ended.load(Ordering::Acquire)
    }

    /// Removes the reports and asynchronous events that were not fetched. None follows:
    /// [`channel::Shared::notify`] and [`EventQueue::push_of`] ask [`may_report`](Self::may_report) under
    /// the locks that this takes afterwards.
    fn end_reports(&self) {
        if self.is_ended.swap(true, Ordering::AcqRel) {
            return;
        }
        if let Some(channel) = &self.channel {
            channel.remove(self);
            channel.on_queue_destroyed();
        }
        self.events.remove(EventSource::CompletionQueue(self.handle));
    }

    /// Delivers an asynchronous event of the queue, unless the program has destroyed it.
    pub(crate) fn push_event(&self, event: AsyncEvent) {
        self.events.push_of(event, || self.may_report());
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
        let completion = entries.list.pop_front();
        self.on_removed(&mut entries);
        completion
    }

    /// Passes at most `max` completions to `each`, oldest first, and returns how many.
    #[inline]
    fn take(&self, max: usize, each: &mut impl FnMut(Completion)) -> usize {
        if self.waiting.load(Ordering::Acquire) == 0 {
            return 0;
        }
        let mut entries = self.entries();
        let count = entries.list.len().min(max);
        entries.list.drain(..count).for_each(each);
        self.on_removed(&mut entries);
        count
    }

    /// Removes the completions of a queue pair that was destroyed or reset.
    pub(crate) fn remove_qp(&self, qpn: roce_wire::Qpn) {
        let mut entries = self.entries();
        entries.list.retain(|completion| completion.qpn != qpn);
        self.waiting.store(entries.list.len(), Ordering::Release);
    }
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
        if self.driver.check_alive().is_ok() {
            self.inner.remove_user();
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
            entries: Mutex::new(Entries {
                list: VecDeque::with_capacity(capacity.min(4096)),
                ..Entries::default()
            }),
            waiting: AtomicUsize::new(0),
            armed: AtomicU8::new(armed::NOT),
            users: AtomicUsize::new(1),
            is_ended: AtomicBool::new(false),
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

    /// Returns the queue of a report that the program fetches.
    pub(crate) fn of_report(report: Report, driver: Arc<Driver>) -> Self {
        let Report(inner) = report;
        inner.on_report_fetched();
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
        let held = entries.list.len();
        if capacity < held {
            return Err(Error::QueueInUse { requested: capacity, held });
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
    /// misses none. The exception is a program that has fetched a report and has not polled since: the
    /// report has told it of those completions. If it then polls some of them, the others are reported.
    ///
    /// A report stays until a thread fetches it, or the queue is gone. So a report may find the queue
    /// empty, where another thread has polled it, or where the program has polled before it fetched the
    /// report. Without a channel this does nothing.
    pub fn arm(&self, solicited_only: bool) {
        // The caller is about to sleep.
        self.driver.send_held_posts();
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
    use std::os::fd::AsFd;

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
            users: AtomicUsize::new(1),
            is_ended: AtomicBool::new(false),
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
        other.remove_user();
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

    fn queue_in_arc_on(channel: &Arc<channel::Shared>) -> Arc<Inner> {
        Arc::new_cyclic(|this| {
            let mut queue = queue_on(1, Some(Arc::clone(channel)));
            queue.this = Weak::clone(this);
            queue
        })
    }

    fn queue_in_arc() -> (Arc<Inner>, Arc<channel::Shared>) {
        let channel = Arc::new(channel::Shared::new().unwrap());
        (queue_in_arc_on(&channel), channel)
    }

    /// Fetches all reports, as a program does, and returns how many there were.
    fn fetch_reports(channel: &channel::Shared) -> usize {
        let fetch = || channel.take().map(|Report(queue)| queue.on_report_fetched());
        std::iter::from_fn(fetch).count()
    }

    fn is_readable(channel: &channel::Shared) -> bool {
        let mut set = [nix::poll::PollFd::new(channel.as_fd(), nix::poll::PollFlags::POLLIN)];
        nix::poll::poll(&mut set, nix::poll::PollTimeout::ZERO).unwrap() == 1
    }

    #[test]
    fn a_queue_that_is_armed_with_completions_reports_them_at_once_and_the_report_stays() {
        let (queue, channel) = queue_in_arc();
        queue.push(completion(1), micros(1));
        queue.push(completion(2), micros(1));
        queue.arm(armed::NEXT, micros(2));
        assert!(is_readable(&channel), "a program that sleeps now misses nothing");
        assert!(queue.pop().is_some() && queue.pop().is_some());
        assert!(is_readable(&channel), "another thread may have seen it");
        assert_eq!(fetch_reports(&channel), 1);
        assert_eq!(queue.push(completion(3), micros(5)), Pushed::Queued, "for one report");
    }

    #[test]
    fn a_program_that_arms_between_a_report_and_its_poll_is_told_once_of_each_completion() {
        let (queue, channel) = queue_in_arc();
        queue.arm(armed::NEXT, micros(1));
        for wr_id in 1..100 {
            assert_eq!(queue.push(completion(wr_id), micros(2)), Pushed::Notified);
            assert_eq!(fetch_reports(&channel), 1);
            queue.arm(armed::NEXT, micros(3));
            assert_eq!(queue.pop().map(|it| it.wr_id), Some(wr_id));
            assert_eq!(fetch_reports(&channel), 0, "the report before was for it");
        }
    }

    #[test]
    fn completions_that_such_a_program_does_not_know_of_or_leaves_are_reported() {
        let (queue, channel) = queue_in_arc();
        queue.arm(armed::NEXT, micros(1));
        queue.push(completion(1), micros(2));
        queue.push(completion(2), micros(2));
        assert_eq!(fetch_reports(&channel), 1);
        queue.arm(armed::NEXT, micros(3));
        assert!(queue.pop().is_some());
        assert_eq!(fetch_reports(&channel), 1, "the poll has left one");
        queue.push(completion(3), micros(4));
        queue.arm(armed::NEXT, micros(5));
        assert_eq!(fetch_reports(&channel), 1, "one came after the report was fetched");
        assert!(queue.pop().is_some());
        queue.arm(armed::NEXT, micros(6));
        assert_eq!(fetch_reports(&channel), 1, "the program has polled one of two");
    }

    #[test]
    fn a_destroyed_queue_leaves_nothing_to_fetch_and_reports_nothing() {
        let (queue, channel) = queue_in_arc();
        let event = AsyncEvent::CqError { cq: queue.handle };
        for wr_id in 0..3 {
            queue.arm(armed::NEXT, micros(1));
            queue.push(completion(wr_id), micros(2));
        }
        queue.push_event(event);
        assert!(is_readable(&channel));
        queue.remove_user();
        assert!(!is_readable(&channel));
        // Completions of a queue pair that was destroyed before may still arrive.
        queue.armed.store(armed::NEXT, Ordering::Release);
        queue.push(completion(3), micros(3));
        queue.push_event(event);
        assert!(!is_readable(&channel) && channel.take().is_none());
        assert_eq!(queue.events.take(), None);
    }

    #[test]
    fn destroying_one_queue_leaves_the_reports_of_another() {
        let channel = Arc::new(channel::Shared::new().unwrap());
        let [one, other] = [(); 2].map(|()| queue_in_arc_on(&channel));
        for queue in [&one, &other, &one] {
            queue.arm(armed::NEXT, micros(1));
            queue.push(completion(1), micros(2));
        }
        one.remove_user();
        assert!(is_readable(&channel));
        assert_eq!(fetch_reports(&channel), 1);
        assert!(!is_readable(&channel));
    }

    #[test]
    fn a_caller_relies_on_the_thread_from_arming_until_a_moment_after_the_report() {
        let (queue, channel) = queue_in_arc();
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
        let (queue, _channel) = queue_in_arc();
        queue.arm(armed::NEXT, micros(10));
        let later = micros(10) + INLINE_RECENT;
        queue.note_polled(later);
        assert!(!queue.relies_on_thread(later));
        queue.arm(armed::NEXT, later);
        assert!(queue.relies_on_thread(later), "it armed anew");
    }

    #[test]
    fn a_caller_whose_reports_come_while_it_is_in_wait_does_not_rely_on_the_thread() {
        let (queue, channel) = queue_in_arc();
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
