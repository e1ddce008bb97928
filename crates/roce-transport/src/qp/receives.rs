//! The receives of a queue pair of any service.

use crate::context::Context;
use crate::qp::context::QpContext;
use crate::qp::receive_queue::ReceiveQueue;
use crate::qp::shared_receive_queue::SrqTable;
use crate::qp::validate::validate_recv;
use crate::{
    AsyncEvent, CompletionStatus, Observer, PostError, QpInit, QpState, RecvWr, SrqHandle,
};

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

    /// Posts to the queue pair's own queue, of which a message holds `held` receives besides.
    pub(crate) fn post<O: Observer>(
        &mut self,
        work: RecvWr,
        held: u32,
        qp: &QpContext,
        cx: &mut Context<'_, O>,
    ) -> Result<(), PostError> {
        let Self::Own(queue) = self else { return Err(PostError::HasSharedQueue) };
        validate_recv(&work, qp, queue, held)?;
        queue.reserve()?;
        cx.out.observer.posted_recv(cx.now, cx.qpn, work.wr_id);
        queue.push(work);
        if qp.state == QpState::Error {
            self.flush(qp, cx);
        }
        Ok(())
    }

    /// Flushes the queue pair's own queue: it has gone to ERROR, or was there before (`was_failed`).
    pub(crate) fn end<O: Observer>(
        &mut self,
        was_failed: bool,
        qp: &QpContext,
        cx: &mut Context<'_, O>,
    ) {
        self.flush(qp, cx);
        //= rule srq-last-wqe: InfiniBand, clause not known
        //# A queue pair with a shared receive queue that goes to ERROR raises the event of its last
        //# receive, once.
        if matches!(self, Self::Shared(_)) && !was_failed {
            cx.raise(AsyncEvent::LastWqeReached { qpn: cx.qpn });
        }
    }

    //= rule qp-flush: InfiniBand 10.3.1; rxe_resp.c: check_resource
    //# In ERROR all posted requests complete as flushed, in order, and so do those posted later.
    fn flush<O: Observer>(&mut self, qp: &QpContext, cx: &mut Context<'_, O>) {
        let Self::Own(queue) = self else { return };
        while let Some(work) = queue.take() {
            qp.complete_receive(&work, CompletionStatus::WorkRequestFlushed, cx);
        }
    }
}
