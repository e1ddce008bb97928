//! Held requests, as other threads than their caller see them.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use roce_engine::policy::{Check, Held, QueuePairRun};
use roce_transport::Instant;

use super::sleep::ThreadSleep;
use crate::engine::Engine;

/// Posts of the present run to one queue pair; written under the engine's lock only.
#[derive(Debug, Default)]
pub(crate) struct QueuePairRunCell {
    number: AtomicU64,
    posts: AtomicU32,
}

impl QueuePairRunCell {
    #[inline]
    pub(crate) fn load(&self) -> QueuePairRun {
        let number = self.number.load(Ordering::Relaxed);
        QueuePairRun { number, posts: self.posts.load(Ordering::Relaxed) }
    }

    #[inline]
    pub(crate) fn store(&self, run: QueuePairRun) {
        self.number.store(run.number, Ordering::Relaxed);
        self.posts.store(run.posts, Ordering::Relaxed);
    }
}

/// Held requests as the driver thread sees them, without the engine's lock.
#[derive(Debug, Default)]
pub(super) struct HeldPosts {
    is_holding: AtomicBool,
    /// Time at which a request was last held, in nanoseconds; 0 after a round of the driver thread.
    at: AtomicU64,
    /// Interval between two checks of the driver thread, in nanoseconds.
    interval: AtomicU64,
}

impl HeldPosts {
    /// Notes that requests are held at `now`. Returns true if none were held before, so that the
    /// driver thread may not have seen them.
    pub(super) fn note_held(&self, now: Instant, interval: Duration) -> bool {
        self.at.store(now.as_nanos(), Ordering::Relaxed);
        if self.is_holding.load(Ordering::Relaxed) {
            return false;
        }
        self.interval.store(interval.as_nanos() as u64, Ordering::Relaxed); // below a second
        self.is_holding.store(true, Ordering::SeqCst);
        true
    }

    /// Notes a round; under the engine's lock.
    #[inline]
    pub(super) fn note_round(&self, engine: &Engine) {
        if self.is_holding.load(Ordering::Relaxed) && !engine.doorbells().is_holding() {
            self.is_holding.store(false, Ordering::Relaxed);
        }
    }

    /// Notes a round of the driver thread; under the engine's lock.
    pub(super) fn note_driver_round(&self) {
        self.is_holding.store(false, Ordering::Relaxed);
        self.at.store(0, Ordering::Relaxed);
    }

    /// Returns the interval between two checks of the driver thread.
    pub(super) fn interval(&self) -> Duration {
        Duration::from_nanos(self.interval.load(Ordering::Relaxed))
    }

    /// Returns true if requests are held, as far as the calling thread can see.
    #[inline]
    pub(super) fn is_holding(&self) -> bool {
        self.is_holding.load(Ordering::Relaxed)
    }

    fn load(&self) -> Held {
        let is_holding = self.is_holding.load(Ordering::SeqCst);
        let at = Instant::from_nanos(self.at.load(Ordering::Relaxed));
        Held { is_holding, at, interval: self.interval() }
    }

    /// Returns what the driver thread does at `now`.
    pub(super) fn check(&self, now: Instant) -> Check {
        self.load().check(now)
    }

    /// Returns true if the driver thread sleeps beyond its next check.
    pub(super) fn is_missed(&self, sleep: &ThreadSleep) -> bool {
        self.load().next_check().is_some_and(|at| sleep.lasts_beyond(at))
    }
}
