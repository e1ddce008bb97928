//! The engine of a shard behind its lock, with the sleep of the thread that drives it.
//!
//! The engine sends and delivers in rounds only. A thread that changes it without a round leaves work to
//! the driver thread, which may sleep, and sees no change. So the engine can be reached only through an
//! [`EngineGuard`], which knows whether a round has followed the last change, and wakes the driver thread
//! where that would come too late. No caller can forget it.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use roce_engine::policy::{BACKLOG_RETRY, Cause, MAX_RECHECK};
use roce_engine::{Departure, MemoryTable, PathTable, RoundOutcome};
use roce_transport::Instant;

use super::common::instant_since;
use super::held_posts::HeldPosts;
use super::sleep::ThreadSleep;
use crate::engine::{Engine, Objects};
use crate::engine_lock::{EngineLock, LockedEngine};
use crate::queue_state::QueueState;
use crate::region::Mapping;

/// An engine behind its lock, and the sleep of the driver thread.
#[derive(Debug)]
pub(super) struct DrivenEngine {
    lock: EngineLock,
    /// As in [`Common`](super::common::Common).
    epoch: std::time::Instant,
    sleep: ThreadSleep,
    held_posts: HeldPosts,
}

/// Access to the engine for as long as it lives. When it is dropped, the driver thread is awake in time for
/// whatever this access has left to do.
#[derive(Debug)]
pub(crate) struct EngineGuard<'a> {
    engine: LockedEngine<'a>,
    of: &'a DrivenEngine,
    last: LastUse,
}

/// What an access has done last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LastUse {
    /// Nothing that makes the engine send, deliver or set a timer.
    Nothing,
    /// A round. It has done what could be done, and a program that posts and polls comes back: a wake-up
    /// for each request would cost more than the request.
    Round,
    /// Something else.
    Change,
}

impl DrivenEngine {
    pub(super) fn new(engine: Engine, epoch: std::time::Instant) -> std::io::Result<Self> {
        Ok(Self {
            lock: EngineLock::new(engine),
            epoch,
            sleep: ThreadSleep::new()?,
            held_posts: HeldPosts::default(),
        })
    }

    /// Waits for the lock.
    #[cfg_attr(test, track_caller)]
    pub(super) fn lock_engine(&self) -> EngineGuard<'_> {
        #[cfg(test)]
        note_entry();
        EngineGuard { engine: self.lock.lock(), of: self, last: LastUse::Nothing }
    }

    /// Takes the lock if no thread holds it.
    #[cfg_attr(test, track_caller)]
    pub(super) fn try_lock_engine(&self) -> Option<EngineGuard<'_>> {
        #[cfg(test)]
        note_entry();
        let engine = self.lock.try_lock()?;
        Some(EngineGuard { engine, of: self, last: LastUse::Nothing })
    }

    /// Returns true if a thread holds the lock now.
    pub(super) fn is_locked(&self) -> bool {
        self.lock.is_locked()
    }

    /// Returns the driver thread's sleep.
    pub(super) fn sleep(&self) -> &ThreadSleep {
        &self.sleep
    }

    /// Returns what the driver thread sees of held posts.
    pub(super) fn held_posts(&self) -> &HeldPosts {
        &self.held_posts
    }
}

impl EngineGuard<'_> {
    /// Runs a round: see [`Engine::run`](roce_engine::Engine::run).
    #[inline]
    pub(super) fn run(
        &mut self,
        now: Instant,
        cause: Cause,
        poller: Option<&QueueState>,
    ) -> RoundOutcome {
        self.last = LastUse::Round;
        self.engine.run(now, cause, poller)
    }

    /// Delivers completions and events, which is all that posted receives leave to do.
    #[inline]
    pub(super) fn deliver(&mut self, now: Instant) {
        self.last = LastUse::Round;
        self.engine.deliver(now);
    }

    /// Notes a post, and lets the driver thread look after what has not left.
    #[inline]
    pub(crate) fn note_posted(&mut self, departure: Departure) {
        self.last = match departure {
            Departure::Held => LastUse::Nothing,
            Departure::Left | Departure::Stalled => LastUse::Round,
        };
        if departure != Departure::Left {
            let DrivenEngine { held_posts, sleep, .. } = self.of;
            let interval = self.engine.doorbells().check_interval();
            if held_posts.note_held(self.engine.last_now(), interval) && held_posts.is_missed(sleep)
            {
                sleep.wake();
            }
        }
    }

    /// Returns registered memory, of which no change makes the engine send.
    pub(crate) fn memory_mut(&mut self) -> &mut MemoryTable<Arc<Mapping>> {
        self.engine.memory_mut()
    }

    /// Returns the paths, of which no change makes the engine send.
    pub(crate) fn paths_mut(&mut self) -> &mut PathTable {
        self.engine.paths_mut()
    }

    /// Returns what completions and events go to, of which no change makes the engine send.
    pub(crate) fn consumer_mut(&mut self) -> &mut Objects {
        self.engine.consumer_mut()
    }

    /// Counts a call that changes nothing: see [`Engine::count_call`](roce_engine::Engine::count_call).
    pub(crate) fn count_call(&mut self, counter: &'static str) {
        self.engine.count_call(counter);
    }

    /// Returns when the engine needs its next round, whether frames arrive or not.
    pub(super) fn wake_at(&self, now: Instant) -> Option<Instant> {
        let left = self.engine.is_unfinished().then(|| now + BACKLOG_RETRY);
        left.into_iter().chain(self.next_timer()).min()
    }

    /// Returns when there is work that no descriptor shows: a backlog, or the next timer.
    pub(super) fn next_work(&self) -> Option<Instant> {
        self.wake_at(self.engine.last_now())
    }

    /// Returns the next timer of the endpoint, of a device or of connection management, or the time
    /// at which a delayed ACK or a held completion is due, or a pause of the link ends.
    pub(super) fn next_timer(&self) -> Option<Instant> {
        let engine = &*self.engine;
        let of_devices = engine.device_timeout().map(|at| instant_since(self.of.epoch, at));
        let of_link = engine.pause_end();
        let of_agent = engine.management_timeout();
        let timers =
            [engine.endpoint().poll_timeout(), engine.held_due(), of_devices, of_link, of_agent];
        timers.into_iter().flatten().min()
    }
}

impl Deref for EngineGuard<'_> {
    type Target = Engine;

    #[inline]
    fn deref(&self) -> &Engine {
        &self.engine
    }
}

impl DerefMut for EngineGuard<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Engine {
        self.last = LastUse::Change;
        &mut self.engine
    }
}

impl Drop for EngineGuard<'_> {
    /// Wakes the driver thread if it sleeps beyond the next timer or a backlog; after a round if it sleeps
    /// more than [`MAX_RECHECK`] beyond them.
    #[inline]
    fn drop(&mut self) {
        let tolerance = match self.last {
            LastUse::Nothing => return,
            LastUse::Round => MAX_RECHECK,
            LastUse::Change => Duration::ZERO,
        };
        let DrivenEngine { sleep, held_posts, .. } = self.of;
        held_posts.note_round(&self.engine);
        let is_missed = |at: Instant| sleep.lasts_beyond(at + tolerance);
        // The cheap test first: mostly the thread is awake, or will be soon.
        if is_missed(self.engine.last_now()) && self.next_work().is_some_and(is_missed) {
            sleep.wake();
        }
    }
}

/// Files and lines from which the engine was locked.
#[cfg(test)]
static ENTRIES: std::sync::Mutex<std::collections::BTreeSet<(&'static str, u32)>> =
    std::sync::Mutex::new(std::collections::BTreeSet::new());

/// Notes from where the engine is locked.
#[cfg(test)]
#[track_caller]
fn note_entry() {
    let from = std::panic::Location::caller();
    ENTRIES.lock().unwrap().insert((from.file(), from.line()));
}

/// Returns the files and lines from which tests of this process have locked an engine.
#[cfg(test)]
pub(super) fn entries_of_tests() -> std::collections::BTreeSet<(&'static str, u32)> {
    ENTRIES.lock().unwrap().clone()
}
