//! The last part of a round: completions and events go to the consumer.

use roce_transport::{Completion, CqHandle, Endpoint, Instant};

use super::drops::Drops;
use super::induced_faults::inject;
use super::round_outcome::RoundOutcome;
use crate::consumer::{Consumer, Pushed};
use crate::policy::{Cause, SilentReply};

/// What completions and events go to, and the completion that does not go yet.
pub(super) struct Delivery<C> {
    pub(super) consumer: C,
    /// A completion that waits for a message of the peer, and its queue.
    held: Option<(CqHandle, Completion)>,
}

impl<C: Consumer> Delivery<C> {
    pub(super) fn new(consumer: C) -> Self {
        Self { consumer, held: None }
    }

    /// Delivers completions and events to their queues, and keeps the first completion that may bypass the
    /// polled queue. The only one may be held, and is then delivered by a later round.
    pub(super) fn deliver(
        &mut self,
        endpoint: &mut Endpoint<C::Observer>,
        silent_reply: &mut SilentReply,
        drops: &mut Drops,
        poller: Option<&C::Queue>,
        now: Instant,
        cause: Cause,
    ) -> RoundOutcome {
        let mut round = RoundOutcome::default();
        let is_held = self.held.is_some();
        while let Some((handle, mut completion)) =
            self.held.take().or_else(|| endpoint.poll_completion())
        {
            if round.delivered == 0 && (is_held || silent_reply.is_habit_known()) {
                // Decides whether it is held, or goes on to be.
                if is_awaited::<C>(handle, poller, cause, silent_reply)
                    && !endpoint.has_completions()
                    && silent_reply.holds(now, &completion)
                {
                    self.held = Some((handle, completion));
                    break;
                }
                silent_reply.on_released();
            }
            if let Some(fault) = self.consumer.fault_of(handle, &completion) {
                inject(endpoint, drops, now, fault, &mut completion);
            }
            silent_reply.on_delivered(completion.qpn);
            round.delivered += 1;
            if round.completion.is_none()
                && poller.is_some_and(|queue| C::can_bypass(queue, handle))
            {
                poller.into_iter().for_each(|queue| C::on_bypass(queue, &completion));
                round.completion = Some(completion);
                continue;
            }
            let pushed = match self.consumer.push(handle, completion, now) {
                Pushed::Full => self.push_to_full(endpoint, drops, handle, completion, now),
                pushed => pushed,
            };
            round.notified |= pushed == Pushed::Notified;
        }
        while let Some(event) = endpoint.poll_event() {
            round.delivered += 1;
            self.consumer.push_event(event);
        }
        round
    }

    /// Lets a completion take the place of the oldest one of a full queue that ignores overruns; it is lost, and the
    /// queue pairs end, where the queue does not.
    #[cold]
    #[inline(never)]
    fn push_to_full(
        &mut self,
        endpoint: &mut Endpoint<C::Observer>,
        drops: &mut Drops,
        handle: CqHandle,
        completion: Completion,
        now: Instant,
    ) -> Pushed {
        // Again where another engine has taken the place.
        while self.consumer.drop_oldest(handle) {
            drops.count("overwritten_completions");
            let pushed = self.consumer.push(handle, completion, now);
            if pushed != Pushed::Full {
                return pushed;
            }
        }
        self.consumer.on_lost(handle, &completion);
        endpoint.handle_cq_overflow(now, handle);
        Pushed::Full
    }
}

/// Returns true if the program may wait for a message beside the completion.
fn is_awaited<C: Consumer>(
    handle: CqHandle,
    poller: Option<&C::Queue>,
    cause: Cause,
    silent_reply: &SilentReply,
) -> bool {
    match cause {
        Cause::Poll => {
            poller.is_some_and(|queue| !C::has_channel(queue) && C::can_bypass(queue, handle))
        }
        // It runs beside the program, and shows nothing of it.
        Cause::DriverThread => silent_reply.due().is_some(),
        _ => false,
    }
}
