//! Blocks a polling thread on a contended processor until a device has work.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use roce_engine::policy::{Cause, LOCK_HOLDER_SLEEP, MAX_BLOCK, Wait};

use super::polled;
use super::shard::Shard;
use super::sleep::{is_closed, sleep};
use crate::thread_wait;

impl Shard {
    /// Yields or blocks if the calling thread has polled for long enough. The caller does not hold the
    /// engine's lock.
    #[inline]
    pub(super) fn after_empty_poll(self: &Arc<Self>) {
        match thread_wait::with_current(|policy| policy.on_empty_poll(thread_wait::now)) {
            Wait::Poll => {}
            Wait::Yield => {
                thread_wait::yield_now(std::time::Instant::now());
            }
            Wait::Block => self.block_polling_thread(),
        }
    }

    /// Blocks the calling thread until any shard that it polls has frames, or a timer is due.
    ///
    /// A thread may poll several in turn, of one device or of many. It blocks when it comes to one
    /// of them for the second time, and then on all.
    #[cold]
    fn block_polling_thread(self: &Arc<Self>) {
        if polled::note(Arc::as_ptr(self)) {
            return;
        }
        let shards = polled::take();
        let Some(limit) = shards
            .iter()
            .try_fold(MAX_BLOCK, |limit, shard| shard.prepare_to_block().map(|its| limit.min(its)))
        else {
            return;
        };
        if shards.is_empty() {
            return;
        }
        let fds: Vec<_> =
            shards.iter().flat_map(|shard| shard.device_fds()).map(AsFd::as_fd).collect();
        match sleep(&fds, Some(limit)) {
            // What the program has closed it does not wait for.
            Err(error) if !is_closed(&error) => {
                tracing::error!(%error, "a polling thread cannot block");
            }
            _ => {}
        }
        thread_wait::with_current(|policy| policy.on_blocked(thread_wait::now()));
    }

    /// Sends all that waits for the next poll, and returns how long the thread may block; `None` if
    /// there is work.
    pub(super) fn prepare_to_block(&self) -> Option<Duration> {
        let Some(mut engine) = self.engine.try_lock_engine() else {
            // The round of that thread may deliver to the calling thread, which has to poll again.
            wait_for_lock_holder();
            return None;
        };
        let now = self.now();
        if engine.run(now, Cause::Block, None).did_work() {
            return None;
        }
        let wake_at = engine.wake_at(now);
        let limit = wake_at.map_or(MAX_BLOCK, |at| at.saturating_since(now).min(MAX_BLOCK));
        // The driver thread sleeps as long as this one is about to come back.
        self.record_inline_poll(now + limit);
        Some(limit)
    }
}

/// Lets the thread run that holds the engine's lock.
///
/// On a contended processor it may have been preempted. Waiting for the lock itself could take for
/// ever: the holder releases it between two rounds only for a moment.
pub(super) fn wait_for_lock_holder() {
    if thread_wait::with_current(|policy| policy.is_contended()) {
        std::thread::sleep(LOCK_HOLDER_SLEEP);
    } else {
        thread_wait::yield_now(std::time::Instant::now());
    }
}
