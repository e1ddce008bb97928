//! Posting, and the state of held requests that the driver thread reads.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use roce_engine::policy::{
    CallerRun, Check, Doorbell, DoorbellCoalescing, Held, Posted, QueuePairRun,
};
use roce_transport::Instant;

use super::sleep::ThreadSleep;
use super::{Driver, Shared};
use crate::engine::Engine;
use crate::error::Error;

std::thread_local! {
    /// The run of posts that this thread is in, and the device of which (an address, which is
    /// only compared).
    static RUN: Cell<(usize, CallerRun)> = const { Cell::new((0, CallerRun::NONE)) };
}

/// Ends the calling thread's run of posts.
#[inline]
pub(super) fn end_run() {
    RUN.set((0, CallerRun::NONE));
}

/// Posts of the present run to one queue pair; written under the engine's lock only.
#[derive(Debug, Default)]
pub(crate) struct QueuePairRunCell {
    number: AtomicU64,
    posts: AtomicU32,
}

impl QueuePairRunCell {
    fn load(&self) -> QueuePairRun {
        let number = self.number.load(Ordering::Relaxed);
        QueuePairRun { number, posts: self.posts.load(Ordering::Relaxed) }
    }

    fn store(&self, run: QueuePairRun) {
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
    fn note_held(&self, now: Instant, interval: Duration) -> bool {
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
        if self.is_holding.load(Ordering::Relaxed) && !engine.doorbells.is_holding() {
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

impl Driver {
    /// Posts to a send queue, and sends the requests or holds them: see
    /// [`DoorbellCoalescing`](roce_engine::policy::DoorbellCoalescing). Frames that have arrived wait
    /// for the next poll.
    pub(crate) fn post_send<T>(
        &self,
        queue_pair: &QueuePairRunCell,
        work: impl FnOnce(&mut Engine, Instant) -> (T, Posted),
    ) -> Result<T, Error> {
        let shared = &*self.shared;
        let mut engine = self.engine()?;
        let before = engine.last_now();
        let (result, posted) = work(&mut engine, before);
        let device = std::ptr::from_ref(shared).addr();
        let mut caller = match RUN.get() {
            (its, caller) if its == device => caller,
            _ => CallerRun::NONE,
        };
        let mut run = queue_pair.load();
        if caller.is_begun() {
            let now = shared.now();
            let doorbell = engine.doorbells.on_post(now, &mut caller, &mut run, posted);
            queue_pair.store(run);
            match doorbell {
                Doorbell::Hold => {
                    engine.set_now(now);
                    RUN.set((device, caller));
                    shared.note_held(now, engine.doorbells.check_interval());
                    return Ok(result);
                }
                Doorbell::Ring => engine.posted_round(now),
                Doorbell::RingAndReceive => engine.full_round(now),
            };
        } else {
            engine.doorbells.begin_run(&mut caller, &mut run);
            queue_pair.store(run);
            if engine.endpoint.needs_fresh_now() {
                engine.posted_round(shared.now());
            } else {
                engine.posted_round(before);
            }
        }
        // The clock is read after the message has left: 20 ns of half a round trip.
        let now = shared.now();
        engine.set_now(now);
        engine.doorbells.on_returned(now, &mut caller);
        RUN.set((device, caller));
        shared.wake_thread_if_late(&engine);
        if DoorbellCoalescing::is_long_run(run) && engine.endpoint.has_unsent(posted.queue_pair) {
            // The caller does not poll, so no ACK would open the window.
            engine.full_round(now);
            shared.note_held(now, engine.doorbells.check_interval());
        }
        Ok(result)
    }

    /// Posts receives. They send nothing and change no timer, so the clock is not read.
    pub(crate) fn post_receives<T>(
        &self,
        work: impl FnOnce(&mut Engine, Instant) -> T,
    ) -> Result<T, Error> {
        let mut engine = self.engine()?;
        let now = engine.last_now();
        let result = work(&mut engine, now);
        engine.deliver(now);
        Ok(result)
    }

    /// Sends held posts, if there are any: the caller polls, arms or waits.
    #[inline]
    pub(crate) fn send_held_posts(&self) {
        end_run();
        if self.shared.held_posts.is_holding.load(Ordering::Relaxed) {
            self.transmit_held_posts();
        }
    }

    #[cold]
    fn transmit_held_posts(&self) {
        if self.check_alive().is_ok() {
            let (mut engine, now) = self.shared.lock_now();
            engine.doorbells.on_round(now);
            engine.posted_round(now);
            self.shared.wake_thread_if_late(&engine);
        }
    }
}

impl Shared {
    /// Notes that requests are held at `now`, and wakes the driver thread if it sleeps for too long.
    fn note_held(&self, now: Instant, interval: Duration) {
        if self.held_posts.note_held(now, interval) && self.held_posts.is_missed(&self.sleep) {
            self.sleep.wake();
        }
    }
}
