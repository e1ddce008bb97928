//! Failures and events that the driver asks for.

use alloc::vec;
use alloc::vec::Vec;

use roce_wire::Qpn;

use super::Endpoint;
use super::slot::Slot;
use crate::{AsyncEvent, CompletionStatus, CqHandle, EventSource, Instant, Observer};

/// A work queue of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WorkQueue {
    /// The send queue.
    Send,
    /// The receive queue, or the shared one that it takes receives from.
    Receive,
}

impl<O: Observer> Endpoint<O> {
    /// Lets a queue pair fail as it does after a local error of a request of one of its queues: it goes
    /// to ERROR, or for a send queue of UC or UD to SQE, and what is posted is flushed, completions of
    /// that queue that were not taken included. Does nothing in RESET and ERROR.
    ///
    /// ```
    /// # use roce_transport::{AccessFlags, CqHandle, PdHandle, QpAttributes, QpInit, QpState, Service};
    /// use roce_transport::{Endpoint, EndpointConfig, Instant, WorkQueue};
    ///
    /// let mut endpoint = Endpoint::new(EndpointConfig::default());
    /// let (now, qpn) = (Instant::default(), roce_wire::Qpn::new(0x11).unwrap());
    /// # endpoint.create_qp(qpn, QpInit::new(Service::Uc, PdHandle(1), CqHandle(1))).unwrap();
    /// # endpoint.modify_qp(now, qpn, &QpAttributes::init(AccessFlags::empty())).unwrap();
    /// endpoint.fail_qp(now, qpn, WorkQueue::Receive);
    /// assert_eq!(endpoint.query_qp(qpn).unwrap().state, QpState::Error);
    /// ```
    pub fn fail_qp(&mut self, now: Instant, qpn: Qpn, queue: WorkQueue) {
        for (_, completion) in &mut self.out.completions {
            let is_later = completion.qpn == qpn
                && completion.operation.is_receive() == (queue == WorkQueue::Receive);
            if is_later && completion.status == CompletionStatus::Success {
                completion.status = CompletionStatus::WorkRequestFlushed;
            }
        }
        self.with_qp(now, qpn, |queue_pair, cx| match queue {
            WorkQueue::Send => queue_pair.handle_send_failure(cx),
            WorkQueue::Receive => queue_pair.handle_failure(cx),
        });
    }

    /// Returns the completion queue of a queue pair's send requests.
    pub fn send_queue_of(&self, qpn: Qpn) -> Option<CqHandle> {
        let index = *self.by_qpn.get(&qpn)?;
        Some(self.qps[index].as_ref()?.queue_pair.init().send_cq)
    }

    /// Raises an event with its consequences: a queue pair that it is about goes to ERROR, with
    /// [`AsyncEvent::CqError`] all queue pairs of the queue do, and with [`AsyncEvent::DeviceFatal`] all.
    pub fn raise(&mut self, now: Instant, event: AsyncEvent) {
        let hit: Vec<Qpn> = match (event, event.source()) {
            (AsyncEvent::CqError { cq }, _) => return self.handle_cq_overflow(now, cq),
            (AsyncEvent::DeviceFatal, _) => {
                self.qps.iter().flatten().map(|slot: &Slot| slot.qpn).collect()
            }
            (_, EventSource::QueuePair(qpn)) => vec![qpn],
            _ => Vec::new(),
        };
        self.out.events.push_back(event);
        for qpn in hit {
            self.with_qp(now, qpn, |queue_pair, cx| queue_pair.handle_failure(cx));
        }
    }
}
