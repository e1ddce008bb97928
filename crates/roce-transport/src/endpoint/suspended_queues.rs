//! Queue pairs whose transmit queue is full.

use crate::TransmitQueue;
use crate::endpoint::run_queue::RunQueue;

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
    waiting: RunQueue,
}

impl SuspendedQueues {
    /// Returns true if no transmit queue is suspended.
    pub(crate) const fn is_empty(&self) -> bool {
        self.suspended == 0
    }

    pub(crate) fn suspend(&mut self, queue: TransmitQueue) {
        let index = usize::from(queue.0);
        if self.queues.len() <= index {
            self.queues.resize_with(index + 1, Queue::default);
        }
        let is_suspended = &mut self.queues[index].is_suspended;
        self.suspended += usize::from(!std::mem::replace(is_suspended, true));
    }

    /// Ends the suspension and moves the turns that waited to `ready`.
    pub(crate) fn resume(&mut self, queue: TransmitQueue, ready: &mut RunQueue) {
        let Some(queue) = self.queues.get_mut(usize::from(queue.0)) else { return };
        self.suspended -= usize::from(std::mem::take(&mut queue.is_suspended));
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
