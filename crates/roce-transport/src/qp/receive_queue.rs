//! Posted receives.

use alloc::collections::VecDeque;

use crate::{PostError, RecvWr};

/// Posted receives, in the order in which messages take them.
#[derive(Debug, Default)]
pub(crate) struct ReceiveQueue(VecDeque<RecvWr>);

impl ReceiveQueue {
    /// Makes room for another receive.
    ///
    /// # Errors
    /// [`PostError::OutOfMemory`].
    #[inline]
    pub(crate) fn reserve(&mut self) -> Result<(), PostError> {
        self.0.try_reserve(1).map_err(|_| PostError::OutOfMemory)
    }

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
