//! A shard of a device: an engine behind a lock, and what its threads need to drive it.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use roce_engine::policy::{BACKLOG_RETRY, Cause, MAX_FLUSH, MAX_RECHECK};
use roce_io::process::Own;
use roce_transport::Instant;

use super::caller_run;
use super::common::Common;
use super::held_posts::HeldPosts;
use super::sleep::ThreadSleep;
use crate::completion_queue;
use crate::engine::Engine;
use crate::engine_lock::{EngineGuard, EngineLock};
use crate::error::Error;
use crate::fork;

/// A shard of a device: an engine, and all that is needed to drive it. Its threads share it.
#[derive(Debug)]
pub(crate) struct Shard {
    pub(super) engine: EngineLock,
    /// Its number among the shards of the device.
    pub(super) number: usize,
    pub(super) common: Arc<Common>,
    /// As in `common`.
    epoch: std::time::Instant,
    /// As in `common`.
    pub(super) generation: fork::Generation,
    /// Duplicates of the devices' descriptors, to wait for frames without the lock.
    pub(super) device_fds: Vec<Own<OwnedFd>>,
    /// Time of the last inline round, in nanoseconds since `epoch`; 0 if there was none.
    pub(super) inline_at: AtomicU64,
    /// Threads in `drive_until`.
    pub(super) waiters: AtomicUsize,
    /// The driver thread's sleep.
    pub(super) sleep: ThreadSleep,
    /// The queues that notify a channel.
    notifying: Mutex<Vec<Weak<completion_queue::Inner>>>,
    pub(super) held_posts: HeldPosts,
}

impl Shard {
    /// Makes a shard, which no thread drives yet.
    pub(super) fn new(number: usize, engine: Engine, common: &Arc<Common>) -> Result<Self, Error> {
        let mut device_fds = Vec::new();
        for fd in engine.wait_fds() {
            device_fds.push(Own::make(|| fd.try_clone_to_owned())?);
        }
        Ok(Self {
            engine: EngineLock::new(engine),
            number,
            epoch: common.epoch,
            generation: common.generation,
            common: Arc::clone(common),
            device_fds,
            inline_at: AtomicU64::new(0),
            waiters: AtomicUsize::new(0),
            sleep: ThreadSleep::new()?,
            notifying: Mutex::default(),
            held_posts: HeldPosts::default(),
        })
    }

    /// Returns its number among the shards of the device.
    pub(crate) fn number(&self) -> usize {
        self.number
    }

    /// Checks that this is the process that opened the device.
    ///
    /// # Errors
    /// [`Error::Forked`].
    pub(crate) fn check_alive(&self) -> Result<(), Error> {
        if self.generation.is_current() { Ok(()) } else { Err(Error::Forked) }
    }

    /// Locks the engine.
    pub(crate) fn engine(&self) -> Result<EngineGuard<'_>, Error> {
        // Before the lock: after a fork its holder may be a thread that the child does not have.
        self.check_alive()?;
        Ok(self.lock())
    }

    /// Does `work` on the engine and then runs one round, so that packets due to `work` have left
    /// when this returns. Held packets leave first: `work` may end their queue pair.
    pub(crate) fn with_engine<T>(
        &self,
        work: impl FnOnce(&mut Engine, Instant) -> T,
    ) -> Result<T, Error> {
        self.check_alive()?;
        let (mut engine, now) = self.lock_now();
        caller_run::end_run();
        engine.run(now, Cause::Flush, None);
        let result = work(&mut engine, now);
        self.record_inline_poll(now);
        engine.run(now, Cause::Call, None);
        self.wake_thread_if_late(&engine);
        Ok(result)
    }

    /// Does `work` on the engine between two flushes of held packets.
    pub(crate) fn end<T>(&self, work: impl FnOnce(&mut Engine) -> T) -> Result<T, Error> {
        self.check_alive()?;
        let (mut engine, now) = self.lock_now();
        engine.run(now, Cause::Flush, None);
        let result = work(&mut engine);
        engine.run(now, Cause::Flush, None);
        self.wake_thread_if_late(&engine);
        Ok(result)
    }

    /// Sends held packets, and all else that can leave, at most until `deadline`. Never waits for
    /// the lock beyond that.
    pub(super) fn flush_held(&self, deadline: std::time::Instant) {
        let mut give_up_at = deadline;
        while self.generation.is_current() {
            if let Some(mut engine) = self.engine.try_lock() {
                engine.run(self.now(), Cause::Flush, None);
                if !engine.is_unfinished() || std::time::Instant::now() >= give_up_at {
                    return engine.abandon_held();
                }
                // The rest waits for the interface, which may have no carrier.
                give_up_at = give_up_at.min(std::time::Instant::now() + MAX_FLUSH);
            }
            if std::time::Instant::now() >= give_up_at {
                return;
            }
            std::thread::yield_now();
        }
    }

    pub(super) fn now(&self) -> Instant {
        self.instant_of(std::time::Instant::now())
    }

    /// Converts an instant to the engine's clock.
    pub(super) fn instant_of(&self, at: std::time::Instant) -> Instant {
        super::common::instant_since(self.epoch, at)
    }

    pub(super) fn lock(&self) -> EngineGuard<'_> {
        self.engine.lock()
    }

    pub(super) fn notifying(&self) -> MutexGuard<'_, Vec<Weak<completion_queue::Inner>>> {
        self.notifying.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a queue that notifies a channel.
    pub(super) fn add_notifying(&self, queue: &Arc<completion_queue::Inner>) {
        let mut notifying = self.notifying();
        notifying.retain(|queue| queue.strong_count() > 0);
        notifying.push(Arc::downgrade(queue));
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

    /// Returns the longest time that a thread spins before it sleeps.
    pub(super) fn max_spin(&self) -> Duration {
        self.common.max_spin
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

    /// Returns the next timer of the endpoint, of a device or of connection management, or the time
    /// at which a delayed ACK or a held completion is due, or a pause of the link ends.
    pub(super) fn next_timer(&self, engine: &Engine) -> Option<Instant> {
        let of_devices = engine.device_timeout().map(|at| self.instant_of(at));
        let of_link = engine.pause_end();
        let of_agent = engine.management_timeout();
        let timers =
            [engine.endpoint.poll_timeout(), engine.held_due(), of_devices, of_link, of_agent];
        timers.into_iter().flatten().min()
    }
}
