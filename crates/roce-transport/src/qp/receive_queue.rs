//! The receive queue.

use std::collections::VecDeque;

use crate::qp::shared_receive_queue::SrqTable;
use crate::{QpInit, RecvWr, SrqHandle};

/// Posted receives, in the order in which messages take them.
#[derive(Debug, Default)]
pub(crate) struct ReceiveQueue(VecDeque<RecvWr>);

impl ReceiveQueue {
    pub(crate) fn push(&mut self, work: RecvWr) {
        self.0.push_back(work);
    }

    pub(crate) fn take(&mut self) -> Option<RecvWr> {
        self.0.pop_front()
    }

    /// Puts a receive back that was taken and not used.
    pub(crate) fn put_back(&mut self, work: RecvWr) {
        self.0.push_front(work);
    }

    pub(crate) fn front(&self) -> Option<&RecvWr> {
        self.0.front()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> u32 {
        self.0.len() as u32 // at most `QpCap::MAX_WR`
    }
}

/// The receives of a queue pair: its own, or those of a shared queue.
#[derive(Debug)]
pub(crate) enum Receives {
    Own(ReceiveQueue),
    Shared(SrqHandle),
}

impl Receives {
    pub(crate) fn of(init: &QpInit) -> Self {
        init.srq.map_or_else(|| Self::Own(ReceiveQueue::default()), Self::Shared)
    }

    /// The queue that the next message takes its receive from.
    #[inline]
    pub(crate) fn queue_mut<'a>(
        &'a mut self,
        srqs: &'a mut SrqTable,
    ) -> Option<&'a mut ReceiveQueue> {
        match self {
            Self::Own(queue) => Some(queue),
            Self::Shared(srq) => srqs.queue_mut(*srq),
        }
    }

    /// The queue pair's own queue.
    pub(crate) const fn own(&self) -> Option<&ReceiveQueue> {
        match self {
            Self::Own(queue) => Some(queue),
            Self::Shared(_) => None,
        }
    }

    pub(crate) const fn own_mut(&mut self) -> Option<&mut ReceiveQueue> {
        match self {
            Self::Own(queue) => Some(queue),
            Self::Shared(_) => None,
        }
    }
}
