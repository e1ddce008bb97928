//! Completion queues of a host.

use std::collections::VecDeque;
use std::rc::Rc;

use roce_engine::policy::INLINE_RECENT;
use roce_engine::{Consumer, PlainRegion, Pushed};
use roce_transport::{AsyncEvent, Completion, CqHandle, Instant, PostError};

/// A completion queue.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) handle: CqHandle,
    pub(crate) entries: VecDeque<Completion>,
    pub(crate) has_channel: bool,
    pub(crate) is_armed: bool,
    /// A report waits.
    pub(crate) notified: Option<Instant>,
    /// Time of the last arming or report; zero if there was none.
    pub(crate) event_at: Instant,
    /// Time of the last poll that ran a round while the queue was armed.
    pub(crate) polled_at: Instant,
}

impl Queue {
    pub(crate) fn new(handle: CqHandle, has_channel: bool) -> Self {
        let (event_at, polled_at) = Default::default();
        let entries = VecDeque::new();
        Self { handle, entries, has_channel, is_armed: false, notified: None, event_at, polled_at }
    }

    fn notify_if_armed(&mut self, now: Instant) -> bool {
        let fires = self.has_channel && std::mem::take(&mut self.is_armed);
        if fires {
            (self.event_at, self.notified) = (now, Some(now));
        }
        fires
    }

    pub(crate) fn arm(&mut self, now: Instant) {
        (self.event_at, self.is_armed) = (now, true);
        if !self.entries.is_empty() {
            self.notify_if_armed(now);
        }
    }

    /// Returns true if the program may sleep on the channel's descriptor.
    pub(crate) fn relies_on_thread(&self, now: Instant) -> bool {
        if !self.has_channel || self.event_at == Instant::default() {
            return false;
        }
        let until = self.event_at + INLINE_RECENT;
        if self.is_armed { self.polled_at < until } else { now < until }
    }
}

/// The completion queue that a program polls, as it is before the round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Polled {
    pub(crate) handle: CqHandle,
    pub(crate) can_bypass: bool,
    pub(crate) has_channel: bool,
}

/// All queues of a host.
#[derive(Debug, Default)]
pub(crate) struct Queues(pub(crate) Vec<Queue>);

impl Queues {
    pub(crate) fn get(&mut self, handle: CqHandle) -> &mut Queue {
        self.0.iter_mut().find(|queue| queue.handle == handle).expect("a queue of the host")
    }
}

impl Consumer for Queues {
    type Observer = ();
    type Region = Rc<PlainRegion>;
    type Queue = Polled;
    type Refusal = PostError;

    fn can_bypass(poller: &Polled, handle: CqHandle) -> bool {
        poller.handle == handle && poller.can_bypass
    }

    fn has_channel(poller: &Polled) -> bool {
        poller.has_channel
    }

    fn push(&mut self, handle: CqHandle, completion: Completion, now: Instant) -> Pushed {
        let queue = self.get(handle);
        queue.entries.push_back(completion);
        if queue.notify_if_armed(now) { Pushed::Notified } else { Pushed::Queued }
    }

    fn drop_oldest(&mut self, _: CqHandle) -> bool {
        false
    }

    fn push_event(&mut self, _: AsyncEvent) {}

    fn may_mistake_reports(&self) -> bool {
        self.0.iter().filter(|queue| queue.has_channel).count() > 1
            && self.0.iter().any(|queue| queue.is_armed)
    }

    fn publish_counters(&self, _: impl FnOnce() -> Vec<(&'static str, u64)>) {}
}
