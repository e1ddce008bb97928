//! The port to the consumer: the program above the engine.

use std::ops::Deref;

use roce_transport::{
    AsyncEvent, Completion, CompletionStatus, CqHandle, Instant, Observer, PostError,
};
use roce_wire::Qpn;

use crate::region::Region;

/// What an engine delivers to, as the InfiniBand specification calls the user of verbs.
pub trait Consumer {
    /// The observer of the endpoint.
    type Observer: Observer;
    /// A pointer to registered memory, shared with the owner of the registration.
    type Region: Deref<Target: Region>;
    /// A completion queue whose caller runs the round.
    type Queue;
    /// Why a request is not posted.
    type Refusal: From<PostError>;

    /// Returns true if a completion for `handle` may be returned to the caller that polls `poller`,
    /// without entering the queue.
    fn can_bypass(poller: &Self::Queue, handle: CqHandle) -> bool;

    /// Returns true if `poller` has a channel: its caller may wait for a report instead of polling.
    fn has_channel(poller: &Self::Queue) -> bool;

    /// Returns the fault that the post of a request to the send queue of a queue pair meets. `send_cq` returns
    /// the completion queue of that.
    #[inline]
    fn fault_of_post(
        &mut self,
        _queue_pair: Qpn,
        _send_cq: impl FnOnce() -> Option<CqHandle>,
    ) -> Option<CallFault<Self::Refusal>> {
        None
    }

    /// Returns the fault that a completion meets, before it is delivered to its queue.
    #[inline]
    fn fault_of(&mut self, _handle: CqHandle, _completion: &Completion) -> Option<CompletionFault> {
        None
    }

    /// Notes that a completion is returned to the caller that polls `poller`, without entering the queue.
    fn on_bypass(_poller: &Self::Queue, _completion: &Completion) {}

    /// Adds a completion to its queue, if that exists.
    fn push(&mut self, handle: CqHandle, completion: Completion, now: Instant) -> Pushed;

    /// Removes the oldest completion of a full queue, if the queue ignores overruns; returns false
    /// otherwise.
    fn drop_oldest(&mut self, handle: CqHandle) -> bool;

    /// Notes that a completion is lost, as its queue is full.
    fn on_lost(&mut self, _handle: CqHandle, _completion: &Completion) {}

    /// Delivers an asynchronous event to the owner of its object, or to all.
    fn push_event(&mut self, event: AsyncEvent);

    /// Returns true if the report of a reply may be taken for that of another completion: a queue is
    /// armed whose channel serves several.
    fn may_mistake_reports(&self) -> bool;

    /// Called in each round with work, before completions are delivered, after which the process may
    /// end. `counters` returns the present counters by name.
    fn publish_counters(&self, counters: impl FnOnce() -> Vec<(&'static str, u64)>);
}

/// A fault that a call meets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallFault<E> {
    /// Why the call fails, if it does, and the counter of it.
    pub failure: Option<(E, &'static str)>,
    /// The events that are raised.
    pub events: Vec<AsyncEvent>,
}

/// A fault that a completion meets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompletionFault {
    /// The status that it has then, and the counter of it; its queue pair fails.
    pub status: Option<(CompletionStatus, &'static str)>,
    /// The events that are raised before it is delivered.
    pub events: Vec<AsyncEvent>,
}

/// The outcome of adding a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// It is in the queue.
    Queued,
    /// It is in the queue, and the channel was notified.
    Notified,
    /// The queue is full.
    Full,
}
