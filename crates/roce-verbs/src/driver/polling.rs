//! Polls of empty completion queues, which drive the engine inline.

use roce_engine::policy::{Cause, QuickPoll};
use roce_transport::Completion;

use super::{Driver, blocking, caller_run};
use crate::completion_queue;

/// The outcome of an inline round.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PollOutcome {
    /// The round had work.
    pub(crate) did_work: bool,
    /// A completion that bypassed the polled queue: older than all that the queue holds.
    pub(crate) completion: Option<Completion>,
}

impl Driver {
    /// Runs one round unless another thread does. `poller` is the empty completion queue that was
    /// polled.
    pub(crate) fn drive_inline(&self, poller: Option<&completion_queue::Inner>) -> PollOutcome {
        let shared = &self.shared;
        if !shared.generation.is_current() {
            return PollOutcome::default();
        }
        caller_run::end_run();
        let Some(mut engine) = shared.engine.try_lock() else {
            // Another thread runs a round, which delivers completions for this caller too.
            shared.record_inline_poll(shared.now());
            self.send_held_posts();
            blocking::wait_for_lock_holder();
            return PollOutcome { did_work: true, completion: None };
        };
        let now = match engine.quick_poll() {
            QuickPoll::Idle => {
                drop(engine);
                shared.after_empty_poll();
                return PollOutcome::default();
            }
            QuickPoll::Ready { last_now } => last_now,
            QuickPoll::FullRoundDue => shared.now(),
        };
        shared.record_inline_poll(now);
        if let Some(queue) = poller {
            queue.note_polled(now);
        }
        let round = engine.run(now, Cause::Poll, poller);
        shared.wake_thread_if_late(&engine);
        drop(engine);
        let did_work = round.did_work();
        if !did_work {
            shared.after_empty_poll();
        }
        PollOutcome { did_work, completion: round.completion }
    }
}
