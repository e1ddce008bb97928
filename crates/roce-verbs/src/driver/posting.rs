//! What posting leaves to a shard.

use roce_engine::policy::{CallerRun, Cause};
use roce_transport::Instant;

use super::caller_run::{end_run, run_on, set_run};
use super::shard::Shard;
use crate::engine::Engine;
use crate::error::Error;

impl Shard {
    /// Returns the calling thread's run of posts to this shard.
    #[inline]
    pub(crate) fn caller_run(&self) -> CallerRun {
        run_on(std::ptr::from_ref(self).addr())
    }

    /// Notes the calling thread's run of posts to this shard.
    #[inline]
    pub(crate) fn set_caller_run(&self, run: CallerRun) {
        set_run(std::ptr::from_ref(self).addr(), run);
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
