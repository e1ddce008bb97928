//! The receive queue: where messages go that do not say where.

use std::collections::VecDeque;

use crate::RecvWork;

/// Posted receives, in the order in which messages take them.
#[derive(Debug, Default)]
pub(crate) struct ReceiveQueue(VecDeque<RecvWork>);

impl ReceiveQueue {
    pub(crate) fn push(&mut self, work: RecvWork) {
        self.0.push_back(work);
    }

    pub(crate) fn take(&mut self) -> Option<RecvWork> {
        self.0.pop_front()
    }

    pub(crate) fn front(&self) -> Option<&RecvWork> {
        self.0.front()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> u32 {
        self.0.len() as u32 // at most `Capacities::MAX_WR`
    }
}
