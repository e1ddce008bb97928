//! Shared receive queues: receives that several queue pairs take from.

use alloc::vec::Vec;

use crate::qp::receive_queue::ReceiveQueue;
use crate::{
    ApiMisuse, AsyncEvent, MAX_SGE, ModifySrqError, PostError, QpCap, RecvWr, SrqAttributes,
    SrqHandle, SrqInfo, SrqInit,
};

/// A shared receive queue.
#[derive(Debug)]
pub(crate) struct SharedReceiveQueue {
    init: SrqInit,
    limit: u32,
    queue: ReceiveQueue,
    /// Number of queue pairs that take their receives from it.
    users: u32,
}

/// The shared receive queues of an endpoint, by handle.
#[derive(Debug, Default)]
pub(crate) struct SrqTable {
    slots: Vec<Option<SharedReceiveQueue>>,
    free: Vec<u32>,
}

impl SharedReceiveQueue {
    pub(crate) const fn init(&self) -> &SrqInit {
        &self.init
    }

    pub(crate) const fn queue_mut(&mut self) -> &mut ReceiveQueue {
        &mut self.queue
    }

    /// Returns true, once after the limit was set, if fewer receives are posted than that.
    //= rule srq-limit: rxe_resp.c: get_srq_wqe
    //# The limit of a shared receive queue raises one event when fewer receives are posted, and is
    //# disarmed by it.
    #[inline]
    pub(crate) fn take_limit_reached(&mut self) -> bool {
        let is_reached = self.queue.len() < self.limit;
        if is_reached {
            self.limit = 0;
        }
        is_reached
    }

    pub(crate) fn post(&mut self, wr: RecvWr) -> Result<(), PostError> {
        let SrqInit { max_wr, max_sge, .. } = self.init;
        if self.queue.len() >= max_wr {
            return Err(PostError::ReceiveQueueFull { capacity: max_wr });
        }
        let count = wr.sg_list.len();
        if count > max_sge as usize {
            return Err(PostError::TooManySges { count, max: max_sge });
        }
        self.queue.reserve()?;
        self.queue.push(wr);
        Ok(())
    }

    /// Sets the attributes that `asked` contains. Returns the event if the limit is reached at once.
    pub(crate) fn modify(
        &mut self,
        handle: SrqHandle,
        asked: &SrqAttributes,
    ) -> Result<Option<AsyncEvent>, ModifySrqError> {
        let max_wr = asked.max_wr.unwrap_or(self.init.max_wr);
        let posted = self.queue.len();
        if max_wr > QpCap::MAX_WR {
            return Err(ModifySrqError::TooLarge { asked: max_wr, limit: QpCap::MAX_WR });
        }
        //= rule srq-modify: rxe_srq.c: rxe_srq_chk_attr
        //# A shared receive queue takes no capacity below what is posted, and no limit above its
        //# capacity.
        if max_wr < posted {
            return Err(ModifySrqError::TooSmall { asked: max_wr, posted });
        }
        if let Some(limit) = asked.limit.filter(|limit| *limit > max_wr) {
            return Err(ModifySrqError::LimitTooLarge { asked: limit, max_wr });
        }
        self.init.max_wr = max_wr;
        self.limit = asked.limit.unwrap_or(self.limit);
        Ok(self.take_limit_reached().then_some(AsyncEvent::SrqLimitReached { srq: handle }))
    }

    fn info(&self) -> SrqInfo {
        let Self { init, limit, queue, users } = self;
        SrqInfo { init: *init, limit: *limit, posted: queue.len(), users: *users }
    }
}

impl SrqTable {
    pub(crate) fn create(&mut self, init: SrqInit) -> Result<SrqHandle, ApiMisuse> {
        for (capacity, asked, limit) in
            [("max_wr", init.max_wr, QpCap::MAX_WR), ("max_sge", init.max_sge, MAX_SGE)]
        {
            if asked > limit {
                return Err(ApiMisuse::CapacityTooLarge { capacity, asked, limit });
            }
        }
        let queue = ReceiveQueue::default();
        let made = Some(SharedReceiveQueue { init, limit: 0, queue, users: 0 });
        let index = match self.free.pop() {
            Some(index) => {
                self.slots[index as usize] = made;
                index
            }
            None => {
                self.slots.push(made);
                self.slots.len() as u32 - 1 // bounded by the memory that they take
            }
        };
        Ok(SrqHandle(index))
    }

    /// Removes a queue that no queue pair uses, with its receives.
    pub(crate) fn destroy(&mut self, handle: SrqHandle) -> Result<(), ApiMisuse> {
        let users = self.get(handle).ok_or(ApiMisuse::UnknownSrq(handle))?.users;
        if users > 0 {
            return Err(ApiMisuse::SrqInUse { srq: handle, users });
        }
        self.slots[handle.0 as usize] = None;
        self.free.push(handle.0);
        Ok(())
    }

    pub(crate) fn get(&self, handle: SrqHandle) -> Option<&SharedReceiveQueue> {
        self.slots.get(handle.0 as usize)?.as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, handle: SrqHandle) -> Option<&mut SharedReceiveQueue> {
        self.slots.get_mut(handle.0 as usize)?.as_mut()
    }

    /// The receives of a shared queue.
    // Apart, since packets of a queue pair with receives of its own cost more instructions otherwise.
    #[cold]
    pub(crate) fn queue_mut(&mut self, handle: SrqHandle) -> Option<&mut ReceiveQueue> {
        self.get_mut(handle).map(SharedReceiveQueue::queue_mut)
    }

    pub(crate) fn info(&self, handle: SrqHandle) -> Option<SrqInfo> {
        self.get(handle).map(SharedReceiveQueue::info)
    }

    /// A queue pair takes from this queue from now on.
    pub(crate) fn add_user(&mut self, handle: SrqHandle) {
        if let Some(queue) = self.get_mut(handle) {
            queue.users += 1;
        }
    }

    /// A queue pair that took from this queue is gone.
    pub(crate) fn remove_user(&mut self, handle: SrqHandle) {
        if let Some(queue) = self.get_mut(handle) {
            queue.users -= 1;
        }
    }
}
