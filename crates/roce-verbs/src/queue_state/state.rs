//! The part of a completion queue that the engine fills and the application empties.

use std::collections::{TryReserveError, VecDeque};
use std::sync::{Arc, PoisonError, Weak};

use roce_engine::Pushed;
use roce_engine::policy::INLINE_RECENT;
use roce_transport::{
    AsyncEvent, Completion, CompletionStatus, CqHandle, EventSource, Instant, Retired,
};

use super::reports;
use super::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use super::sync::{Mutex, MutexGuard};
use crate::events::EventQueue;
use crate::process::fork;
use crate::shard_set::QueueShards;
use crate::work_slots::WorkSlots;

/// The part that the engine fills and the application empties.
#[derive(Debug)]
pub(crate) struct QueueState {
    pub(crate) handle: CqHandle,
    /// The shards that its completions come from.
    pub(crate) shards: QueueShards,
    /// Written under the lock of the entries.
    pub(crate) capacity: AtomicUsize,
    /// A completion for the full queue takes the place of the oldest one.
    pub(crate) ignores_overrun: AtomicBool,
    pub(crate) entries: Mutex<Entries>,
    /// Number of entries, read without a lock.
    pub(crate) waiting: AtomicUsize,
    /// Written under the lock of the entries, except by a report.
    pub(crate) armed: AtomicU8,
    /// Number of [`CompletionQueue`]s.
    pub(crate) users: AtomicUsize,
    /// The queue reports nothing any more: see [`CompletionQueue::end_reports`].
    pub(crate) is_ended: AtomicBool,
    /// The program has been told that the queue has failed.
    pub(crate) has_failed: AtomicBool,
    /// Time of the last arming or report, in nanoseconds of the device's clock; 0 if there was none.
    pub(crate) event_at: AtomicU64,
    /// Time of the last poll that ran a round while the queue was armed. As above.
    pub(crate) polled_at: AtomicU64,
    pub(crate) channel: Option<Arc<reports::Shared>>,
    /// The asynchronous events of its context.
    pub(crate) events: Arc<EventQueue>,
    /// Whose work queues have the places of its completions' requests.
    pub(crate) slots: Arc<WorkSlots>,
    /// The process that has made the queue.
    generation: fork::Generation,
    pub(crate) this: Weak<QueueState>,
}

/// The completions of a queue.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    pub(crate) list: VecDeque<Completion>,
    /// There are completions that the program has not been told of: since it fetched the last report,
    /// one was added, or a poll has left some.
    pub(crate) has_news: bool,
    /// The queue was armed without a report, although it held completions, as the program had just been
    /// told of them all. A poll that leaves some reports those.
    pub(crate) is_report_owed: bool,
}

/// A report of a queue, which counts as one of its users.
#[derive(Debug)]
pub(crate) struct Report(Arc<QueueState>);

impl Report {
    /// Notes that the program has fetched the report, and returns its queue, of which the caller is a
    /// user now.
    pub(crate) fn fetch(self) -> Arc<QueueState> {
        self.0.on_report_fetched();
        self.0
    }

    /// Returns the report of a queue that is not destroyed.
    pub(crate) fn of(queue: &Weak<QueueState>) -> Option<Self> {
        queue.upgrade().filter(|queue| queue.may_report() && queue.add_user()).map(Self)
    }
}

/// Kinds of completions that the queue reports on the channel.
pub(crate) mod armed {
    pub(crate) const NOT: u8 = 0;
    pub(crate) const SOLICITED: u8 = 1;
    pub(crate) const NEXT: u8 = 2;
}

impl QueueState {
    /// Makes a queue with this home that reports on `channel`, as the first of its users.
    pub(crate) fn new(
        this: &Weak<Self>,
        handle: CqHandle,
        home: usize,
        capacity: usize,
        channel: Option<Arc<reports::Shared>>,
        events: Arc<EventQueue>,
        slots: Arc<WorkSlots>,
    ) -> Self {
        if let Some(channel) = &channel {
            channel.on_queue_created();
            channel.shards.add(home);
        }
        Self {
            handle,
            shards: QueueShards::new(home),
            capacity: AtomicUsize::new(capacity),
            ignores_overrun: AtomicBool::new(false),
            entries: Mutex::new(Entries::default()),
            waiting: AtomicUsize::new(0),
            armed: AtomicU8::new(armed::NOT),
            users: AtomicUsize::new(1),
            is_ended: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
            event_at: AtomicU64::new(0),
            polled_at: AtomicU64::new(0),
            channel,
            events,
            slots,
            generation: fork::Generation::current(),
            this: Weak::clone(this),
        }
    }

    /// Reserves memory for as many completions, which takes none before they come.
    ///
    /// # Errors
    /// No memory is left.
    pub(crate) fn reserve(&self, capacity: usize) -> Result<(), TryReserveError> {
        let mut entries = self.entries();
        let more = capacity.saturating_sub(entries.list.len());
        entries.list.try_reserve_exact(more)
    }

    /// Returns its name.
    pub(crate) fn handle(&self) -> CqHandle {
        self.handle
    }

    pub(crate) fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a pointer to the queue as long as anything keeps it alive.
    pub(crate) fn weak(&self) -> Weak<Self> {
        Weak::clone(&self.this)
    }

    /// Returns true if the queue reports on a channel.
    pub(crate) fn has_channel(&self) -> bool {
        self.channel.is_some()
    }

    /// Returns true if a completion for the full queue takes the place of the oldest one.
    pub(crate) fn ignores_overrun(&self) -> bool {
        self.ignores_overrun.load(Ordering::Relaxed)
    }

    /// Notes a queue pair of a shard that completes here. Callers that wait for the channel's
    /// reports drive the shard from their next wait on.
    pub(crate) fn add_queue_pair_of(&self, shard: usize) {
        self.shards.add(shard);
        if let Some(channel) = &self.channel {
            channel.shards.add(shard);
        }
    }

    /// Adds a completion.
    pub(crate) fn push(&self, completion: Completion, now: Instant) -> Pushed {
        let counts = completion.solicited || completion.status != CompletionStatus::Success;
        let least = if counts { armed::SOLICITED } else { armed::NEXT };
        let fires = {
            let mut entries = self.entries();
            if entries.list.len() >= self.capacity.load(Ordering::Relaxed) {
                return Pushed::Full;
            }
            entries.list.push_back(completion);
            entries.has_news = true;
            self.waiting.store(entries.list.len(), Ordering::Release);
            // With the lock held: a program that takes the completion and then arms the queue arms it for
            // the next one.
            self.disarm(least)
        };
        if fires {
            self.report(Some(now));
            Pushed::Notified
        } else {
            Pushed::Queued
        }
    }

    /// Removes the oldest completion if the queue ignores overruns; returns false otherwise.
    /// Another shard may take the place.
    #[cold]
    pub(crate) fn drop_oldest(&self) -> bool {
        let ignores = self.ignores_overrun();
        if ignores {
            let mut entries = self.entries();
            let lost = entries.list.pop_front();
            lost.iter().for_each(|completion| self.slots.retire(completion));
            self.waiting.store(entries.list.len(), Ordering::Release);
        }
        ignores
    }

    /// The program will never poll a completion, for which the queue has no place.
    #[cold]
    pub(crate) fn lose(&self, completion: &Completion) {
        let _entries = self.entries();
        self.slots.retire(completion);
    }

    /// Returns true if a completion for `handle` may bypass the queue and be returned to the caller
    /// that polls it: it is for this queue, is older than all entries, and no report of it is armed.
    /// The caller holds the engine's lock, under which alone completions of its queue pairs are added:
    /// those of other shards have no order with them. A thread that arms the queue meanwhile arms it for
    /// the next completion.
    pub(crate) fn can_bypass_queue(&self, handle: CqHandle) -> bool {
        // Without a channel arming has no effect and is never undone.
        let is_awaited = self.channel.is_some() && self.armed.load(Ordering::Acquire) != armed::NOT;
        self.handle == handle && !is_awaited && self.waiting.load(Ordering::Acquire) == 0
    }

    /// Returns true if the next completion, or the next solicited one, is to be reported on a channel
    /// where other queues report, too.
    pub(crate) fn is_armed_beside_others(&self) -> bool {
        let shares = |channel: &Arc<reports::Shared>| channel.has_several_queues();
        self.armed.load(Ordering::Relaxed) != armed::NOT
            && self.channel.as_ref().is_some_and(shares)
    }

    /// Disarms a queue with a channel that is armed for at least `least`; returns true if it was. The
    /// caller holds the lock of the entries, and [reports](Self::report) then.
    fn disarm(&self, least: u8) -> bool {
        let fires = |state| (state >= least).then_some(armed::NOT);
        self.channel.is_some()
            && self.armed.fetch_update(Ordering::AcqRel, Ordering::Acquire, fires).is_ok()
    }

    /// Reports on the channel. `now` is left out where the caller does not know it, just after the queue
    /// was armed.
    fn report(&self, now: Option<Instant>) {
        if let Some(now) = now {
            self.event_at.store(now.as_nanos(), Ordering::Relaxed);
        }
        if let Some(channel) = &self.channel {
            channel.notify(self);
        }
    }

    /// Reports completions that the queue holds, if it is armed for any.
    fn report_if_armed(&self, now: Option<Instant>) {
        if self.disarm(armed::NOT + 1) {
            self.report(now);
        }
    }

    /// The part of [`CompletionQueue::arm`] without the driver.
    ///
    /// A report that a thread may have seen is never taken back. So whether completions that the queue
    /// holds are reported at once is decided here: if the program has been told of all of them and has
    /// not polled since, it arms before it polls, and a report would wake it for nothing. Some programs
    /// take each report for one completion (perftest).
    pub(crate) fn arm(&self, state: u8, now: Instant) {
        self.event_at.store(now.as_nanos(), Ordering::Relaxed);
        let mut entries = self.entries();
        // An arming for more is not narrowed by one for less.
        self.armed.fetch_max(state, Ordering::SeqCst);
        let holds_completions = !entries.list.is_empty();
        entries.is_report_owed = holds_completions && !entries.has_news;
        if holds_completions && entries.has_news {
            self.report_if_armed(Some(now));
        }
    }

    /// Notes that the program has fetched a report: it knows of the completions in the queue now.
    pub(crate) fn on_report_fetched(&self) {
        self.entries().has_news = false;
    }

    /// Notes that completions were removed.
    #[inline]
    pub(crate) fn on_removed(&self, entries: &mut Entries) {
        let left = entries.list.len();
        if left == 0 {
            // The next one comes first: memory that was never used stays so.
            entries.list.clear();
        }
        self.waiting.store(left, Ordering::Release);
        entries.has_news = left != 0;
        if std::mem::take(&mut entries.is_report_owed) && left != 0 {
            self.report_if_armed(None);
        }
    }

    /// Counts another [`CompletionQueue`], unless the last one is gone.
    pub(crate) fn add_user(&self) -> bool {
        let more = |users| (users > 0).then_some(users + 1);
        self.users.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
    }

    /// Takes a [`CompletionQueue`] off the count; the last one ends the reports. Returns true if it was that.
    pub(crate) fn remove_user(&self) -> bool {
        let is_last = self.users.fetch_sub(1, Ordering::AcqRel) == 1;
        if is_last {
            self.end_reports();
        }
        is_last
    }

    /// Returns false once the program has begun to destroy the queue.
    pub(crate) fn may_report(&self) -> bool {
        !self.is_ended.load(Ordering::Acquire)
    }

    /// Removes the reports and asynchronous events that were not fetched. None follows:
    /// [`reports::Shared::notify`] and [`EventQueue::push_of`] ask [`may_report`](Self::may_report) under
    /// the locks that this takes afterwards.
    pub(crate) fn end_reports(&self) {
        if self.is_ended.swap(true, Ordering::AcqRel) {
            return;
        }
        if let Some(channel) = &self.channel {
            channel.remove(self);
            channel.on_queue_destroyed();
        }
        self.events.remove(EventSource::CompletionQueue(self.handle));
    }

    /// Delivers the asynchronous event of the queue, that it has failed: once, whatever fails after it, in
    /// which shard ever, and not once the program has destroyed the queue.
    pub(crate) fn push_event(&self, event: AsyncEvent) {
        if !self.has_failed.swap(true, Ordering::Relaxed) {
            self.events.push_of(event, || self.may_report());
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

    /// Returns true in a child after `fork` of the process that made the queue: a thread that the child does not have
    /// may hold the lock.
    #[inline]
    fn is_inherited(&self) -> bool {
        !self.generation.is_current()
    }

    #[inline]
    pub(crate) fn pop(&self) -> Option<Completion> {
        if self.waiting.load(Ordering::Acquire) == 0 || self.is_inherited() {
            return None;
        }
        let mut entries = self.entries();
        let completion = entries.list.pop_front();
        // Before another thread sees that the queue is empty: see `can_bypass_queue`.
        completion.iter().for_each(|completion| self.slots.retire(completion));
        self.on_removed(&mut entries);
        completion
    }

    /// Passes at most `max` completions to `each`, oldest first, and returns how many.
    #[inline]
    pub(crate) fn take(&self, max: usize, each: &mut impl FnMut(Completion)) -> usize {
        if self.waiting.load(Ordering::Acquire) == 0 || self.is_inherited() {
            return 0;
        }
        let mut entries = self.entries();
        let count = entries.list.len().min(max);
        for completion in entries.list.drain(..count) {
            self.slots.retire(&completion);
            each(completion);
        }
        self.on_removed(&mut entries);
        count
    }

    /// Lets the completions of a queue pair that is destroyed retire their requests now: its slot will
    /// be another's.
    pub(crate) fn retire_qp(&self, qpn: roce_wire::Qpn) {
        let mut entries = self.entries();
        for completion in entries.list.iter_mut().filter(|completion| completion.qpn == qpn) {
            self.slots.retire(completion);
            completion.retired = Retired::default();
        }
    }

    /// Removes the completions of a queue pair that is reset. Receives of a shared queue are retired.
    pub(crate) fn remove_qp(&self, qpn: roce_wire::Qpn) {
        let mut entries = self.entries();
        entries.list.retain(|completion| {
            let is_other = completion.qpn != qpn;
            if !is_other {
                self.slots.retire(completion);
            }
            is_other
        });
        self.waiting.store(entries.list.len(), Ordering::Release);
    }
}
