//! Queue pairs whose transmit queue is full.

use alloc::vec::Vec;

use crate::endpoint::run_queue::{RunQueue, Runnable};
use crate::{Instant, TransmitQueue};

/// The driver's transmit queues that are full, and the turns that wait until they have room.
#[derive(Debug, Default)]
pub(crate) struct SuspendedQueues {
    /// By number of the transmit queue.
    queues: Vec<Queue>,
    suspended: usize,
}

#[derive(Debug, Default)]
struct Queue {
    is_suspended: bool,
    /// Time of the suspension, up to which the queue has taken frames.
    since: Instant,
    waiting: RunQueue,
}

impl SuspendedQueues {
    /// Returns true if no transmit queue is suspended.
    pub(crate) const fn is_empty(&self) -> bool {
        self.suspended == 0
    }

    pub(crate) fn suspend(&mut self, queue: TransmitQueue, time: Instant) {
        let index = usize::from(queue.0);
        if self.queues.len() <= index {
            self.queues.resize_with(index + 1, Queue::default);
        }
        let queue = &mut self.queues[index];
        if !core::mem::replace(&mut queue.is_suspended, true) {
            queue.since = time;
            self.suspended += 1;
        }
    }

    /// The time since which the transmit queue that `turn` waits for is full; `None` if it waits for
    /// none.
    pub(crate) fn waits_since(&self, turn: Runnable) -> Option<Instant> {
        self.queues.iter().find(|queue| queue.waiting.contains(turn)).map(|queue| queue.since)
    }

    /// Ends the suspension and moves the turns that waited to `ready`.
    pub(crate) fn resume(&mut self, queue: TransmitQueue, ready: &mut RunQueue) {
        let Some(queue) = self.queues.get_mut(usize::from(queue.0)) else { return };
        self.suspended -= usize::from(core::mem::take(&mut queue.is_suspended));
        while let Some(turn) = queue.waiting.pop() {
            ready.push(turn);
        }
    }

    /// The list of turns that wait for `queue`; `None` if it is not suspended.
    pub(crate) fn waiting(&mut self, queue: TransmitQueue) -> Option<&mut RunQueue> {
        let queue = self.queues.get_mut(usize::from(queue.0)).filter(|it| it.is_suspended)?;
        Some(&mut queue.waiting)
    }
}
