//! What the threads of a device share.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use roce_engine::policy::{BACKLOG_RETRY, MAX_RECHECK};
use roce_transport::Instant;

use super::held_posts::HeldPosts;
use super::sleep::ThreadSleep;
use crate::completion_queue;
use crate::engine::Engine;
use crate::engine_lock::{EngineGuard, EngineLock};
use crate::fork;
use crate::port::Port;

/// The part that the device's threads share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) engine: EngineLock,
    pub(super) port: Port,
    pub(super) epoch: std::time::Instant,
    pub(super) generation: fork::Generation,
    /// Duplicates of the devices' descriptors, to wait for frames without the lock.
    pub(super) device_fds: Vec<OwnedFd>,
    pub(super) stopping: AtomicBool,
    /// Readable once the driver thread runs no more rounds, although the process goes on.
    pub(super) thread_ended: OwnedFd,
    /// Time of the last inline round, in nanoseconds since `epoch`; 0 if there was none.
    pub(super) inline_at: AtomicU64,
    /// Threads in `drive_until`.
    pub(super) waiters: AtomicUsize,
    /// The driver thread's sleep.
    pub(super) sleep: ThreadSleep,
    /// The queues that notify a channel.
    pub(super) notifying: Mutex<Vec<Weak<completion_queue::Inner>>>,
    /// Longest time that a thread spins before it sleeps.
    pub(super) max_spin: Duration,
    pub(super) held_posts: HeldPosts,
}

impl Shared {
    pub(super) fn now(&self) -> Instant {
        self.instant_of(std::time::Instant::now())
    }

    /// Converts an instant to the engine's clock.
    pub(super) fn instant_of(&self, at: std::time::Instant) -> Instant {
        let elapsed = at.saturating_duration_since(self.epoch);
        let nanos = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        // One later than zero, which stands for "never" in the atomics below.
        Instant::from_nanos(nanos.saturating_add(1))
    }

    pub(super) fn lock(&self) -> EngineGuard<'_> {
        self.engine.lock()
    }

    pub(super) fn notifying(&self) -> MutexGuard<'_, Vec<Weak<completion_queue::Inner>>> {
        self.notifying.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn record_inline_poll(&self, now: Instant) {
        self.inline_at.store(now.as_nanos(), Ordering::Relaxed);
    }

    /// Takes the lock, and reads the time when it is held.
    pub(super) fn lock_now(&self) -> (EngineGuard<'_>, Instant) {
        let engine = self.lock();
        let now = self.now();
        (engine, now)
    }

    /// Wakes the driver thread if it sleeps more than [`MAX_RECHECK`] beyond the next timer or a
    /// backlog: an application that posts need not poll. A shorter delay is accepted, since an
    /// application that polls serves both, and a wake-up for each request would cost more than the
    /// request.
    pub(super) fn wake_thread_if_late(&self, engine: &Engine) {
        self.held_posts.note_round(engine);
        let is_missed = |at: Instant| self.sleep.lasts_beyond(at + MAX_RECHECK);
        // The cheap test first: mostly the thread is awake, or will be soon.
        if is_missed(engine.last_now()) && self.next_work(engine).is_some_and(is_missed) {
            self.sleep.wake();
        }
    }

    /// Returns when the engine needs its next round, whether frames arrive or not.
    pub(super) fn wake_at(&self, engine: &Engine, now: Instant) -> Option<Instant> {
        let left = engine.is_unfinished().then(|| now + BACKLOG_RETRY);
        left.into_iter().chain(self.next_timer(engine)).min()
    }

    /// Returns when there is work that no descriptor shows: a backlog, or the next timer.
    pub(super) fn next_work(&self, engine: &Engine) -> Option<Instant> {
        self.wake_at(engine, engine.last_now())
    }

    /// Returns the next timer of the endpoint or of a device, or the time at which a delayed ACK or a held
    /// completion is due, or a pause of the link ends.
    pub(super) fn next_timer(&self, engine: &Engine) -> Option<Instant> {
        let of_devices = engine.device_timeout().map(|at| self.instant_of(at));
        let of_link = engine.pause_end();
        let timers = [engine.endpoint.poll_timeout(), engine.held_due(), of_devices, of_link];
        timers.into_iter().flatten().min()
    }
}
