//! How the calling thread waits: what it has learned of its processor, and yielding it.

use std::cell::RefCell;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use roce_engine::policy::{Next, WaitPolicy, YieldTiming};
use roce_transport::Instant;

thread_local! {
    static CURRENT: RefCell<WaitPolicy> = const { RefCell::new(WaitPolicy::new()) };
}

/// Returns the time for the calling thread's policy.
pub(crate) fn now() -> Instant {
    // The clock exists; if not, no time passes, and the thread polls on.
    clock_gettime(ClockId::CLOCK_MONOTONIC)
        .map_or(Instant::default(), |now| Instant::default() + Duration::from(now))
}

/// Calls `work` with the calling thread's policy.
#[inline]
pub(crate) fn with_current<T>(work: impl FnOnce(&mut WaitPolicy) -> T) -> T {
    CURRENT.with_borrow_mut(work)
}

/// Yields the processor and notes for the calling thread's later polls how long that took, which is
/// returned. `now` is the current time.
pub(crate) fn yield_now(now: std::time::Instant) -> Duration {
    std::thread::yield_now();
    let took = now.elapsed();
    with_current(|policy| policy.on_yielded(took));
    took
}

/// Returns true while the calling thread's processor is contended: its polls of empty completion
/// queues block or yield themselves.
fn polls_give_way() -> bool {
    with_current(|policy| policy.gives_way())
}

/// Yields in a thread that waits for messages of peers on its own processor, when that is worth it.
///
/// With more ranks than processors, some of them share one, and within an operation it has to be
/// handed from one to the other. Where other threads use up whole time slices, polls of a
/// [`CompletionQueue`](crate::CompletionQueue) yield and block themselves, and this does not yield
/// besides.
#[derive(Debug)]
pub struct YieldPolicy {
    timing: YieldTiming,
    epoch: std::time::Instant,
}

impl Default for YieldPolicy {
    fn default() -> Self {
        Self { timing: YieldTiming::default(), epoch: std::time::Instant::now() }
    }
}

impl YieldPolicy {
    /// Begins a wait: yields if first polls have been useless. Returns the time before the yield if
    /// it was timed, which it always is with `is_timed`.
    #[inline]
    pub fn begin_wait(&mut self, is_timed: bool) -> Option<std::time::Instant> {
        if self.timing.first() == Next::Poll || polls_give_way() {
            return None;
        }
        let now = (is_timed || self.timing.is_time_due()).then(std::time::Instant::now);
        self.yield_processor(now);
        now
    }

    /// Notes an empty poll at `now`, so long after the first of the wait, and yields if it is time.
    /// Returns false if the thread has polled for longer than `max_spin` and is to sleep.
    pub fn on_empty(
        &mut self,
        now: std::time::Instant,
        waited: Duration,
        max_spin: Duration,
    ) -> bool {
        let polls_give_way = polls_give_way();
        if waited >= YieldTiming::spin(polls_give_way, max_spin) {
            return false;
        }
        let at = self.instant_of(now);
        if !polls_give_way && self.timing.after_empty(at) == Next::Yield {
            self.yield_processor(Some(now));
        }
        true
    }

    /// Notes that the wait is over: a poll was not empty.
    #[inline]
    pub fn on_ready(&mut self) {
        let epoch = self.epoch;
        self.timing.end_wait(|| since(epoch, std::time::Instant::now()));
    }

    fn yield_processor(&mut self, now: Option<std::time::Instant>) {
        let took = now.map(yield_now);
        if took.is_none() {
            std::thread::yield_now();
        }
        self.timing.on_yielded(took);
    }

    fn instant_of(&self, at: std::time::Instant) -> Instant {
        since(self.epoch, at)
    }
}

/// Converts an instant to a clock that begins at `epoch`.
fn since(epoch: std::time::Instant, at: std::time::Instant) -> Instant {
    Instant::default() + at.saturating_duration_since(epoch)
}
