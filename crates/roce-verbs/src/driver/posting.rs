//! Posting.

use roce_engine::policy::{Cause, Doorbell, DoorbellCoalescing, Posted};
use roce_transport::Instant;

use super::caller_run::{end_run, run_on, set_run};
use super::held_posts::QueuePairRunCell;
use super::shard::Shard;
use crate::engine::Engine;
use crate::error::Error;

impl Shard {
    /// Posts to a send queue, and sends the requests or holds them: see
    /// [`DoorbellCoalescing`](roce_engine::policy::DoorbellCoalescing). Frames that have arrived wait
    /// for the next poll.
    pub(crate) fn post_send<T>(
        &self,
        queue_pair: &QueuePairRunCell,
        work: impl FnOnce(&mut Engine, Instant) -> (T, Posted),
    ) -> Result<T, Error> {
        let mut engine = self.engine()?;
        let before = engine.last_now();
        let (result, posted) = work(&mut engine, before);
        let shard = std::ptr::from_ref(self).addr();
        let mut caller = run_on(shard);
        let mut run = queue_pair.load();
        if caller.is_begun() {
            let now = self.now();
            let doorbell = engine.doorbells_mut().on_post(now, &mut caller, &mut run, posted);
            queue_pair.store(run);
            match doorbell {
                Doorbell::Hold => {
                    set_run(shard, caller);
                    engine.hold_posts(now);
                    return Ok(result);
                }
                Doorbell::Ring => engine.run(now, Cause::Post, None),
                Doorbell::RingAndReceive => engine.run(now, Cause::LongPost, None),
            };
        } else {
            engine.doorbells_mut().begin_run(&mut caller, &mut run);
            queue_pair.store(run);
            let is_clock_read = engine.endpoint.needs_fresh_now();
            let now = if is_clock_read { self.now() } else { before };
            engine.run(now, Cause::Post, None);
        }
        // The clock is read after the message has left: 20 ns of half a round trip.
        let now = self.now();
        engine.set_now(now);
        engine.doorbells_mut().on_returned(now, &mut caller);
        set_run(shard, caller);
        if DoorbellCoalescing::is_long_run(run) && engine.has_unsent(posted.queue_pair) {
            // The caller does not poll, so no ACK would open the window.
            engine.run(now, Cause::LongPost, None);
            engine.note_held_posts(now);
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
        if self.held_posts().is_holding() {
            self.transmit_held_posts();
        }
    }

    #[cold]
    fn transmit_held_posts(&self) {
        if self.check_alive().is_ok() {
            let (mut engine, now) = self.lock_engine_now();
            engine.run(now, Cause::HeldPosts, None);
        }
    }
}
