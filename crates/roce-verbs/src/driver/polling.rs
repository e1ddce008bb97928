//! Polls of empty completion queues, which drive the engine inline.

use std::sync::Arc;

use roce_engine::policy::Cause;
use roce_transport::Completion;

use super::shard::Shard;
use super::{Driver, blocking, caller_run};
use crate::queue_state::QueueState;
use crate::shard_set::ShardMask;

/// The outcome of an inline round.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PollOutcome {
    /// The round had work.
    pub(crate) did_work: bool,
    /// A completion that bypassed the polled queue: older than all that the queue holds.
    pub(crate) completion: Option<Completion>,
}

impl Driver {
    /// Runs a round of each shard whose queue pairs complete in the empty queue that was polled, unless
    /// another thread does, until one of them has returned a completion.
    #[inline]
    pub(crate) fn poll_queue(&self, queue: &QueueState) -> PollOutcome {
        match queue.shards.mask().only() {
            Some(shard) => self.shards.get(shard).drive_inline(Some(queue)),
            None => self.poll_shards(queue),
        }
    }

    #[cold]
    fn poll_shards(&self, queue: &QueueState) -> PollOutcome {
        let mut outcome = PollOutcome::default();
        for shard in queue.shards.next_turn() {
            let of_one = self.shards.get(shard).drive_inline(Some(queue));
            outcome.did_work |= of_one.did_work;
            outcome.completion = of_one.completion;
            if outcome.completion.is_some() {
                break;
            }
        }
        outcome
    }

    /// Sends held posts of these shards, if there are any: the caller polls, arms or waits.
    #[inline]
    pub(crate) fn send_held_posts(&self, shards: ShardMask) {
        match shards.only() {
            Some(shard) => self.shards.get(shard).send_held_posts(),
            None => shards.iter().for_each(|shard| self.shards.get(shard).send_held_posts()),
        }
    }

    /// Runs a round of each open shard, unless another thread does.
    pub(crate) fn run_rounds(&self) {
        for shard in self.shards.iter() {
            shard.drive_inline(None);
        }
    }
}

impl Shard {
    /// Runs one round unless another thread does. `poller` is the empty completion queue that was
    /// polled.
    pub(super) fn drive_inline(self: &Arc<Self>, poller: Option<&QueueState>) -> PollOutcome {
        if !self.generation.is_current() {
            return PollOutcome::default();
        }
        caller_run::end_run();
        let Some(mut engine) = self.engine.try_lock_engine() else {
            // Another thread runs a round, which delivers completions for this caller too.
            self.record_inline_poll(self.now());
            self.send_held_posts();
            blocking::wait_for_lock_holder();
            return PollOutcome { did_work: true, completion: None };
        };
        let now = self.now();
        self.record_inline_poll(now);
        if let Some(queue) = poller {
            queue.note_polled(now);
        }
        let round = engine.run(now, Cause::Poll, poller);
        drop(engine);
        let did_work = round.did_work();
        if !did_work {
            self.after_empty_poll();
        }
        PollOutcome { did_work, completion: round.completion }
    }
}
