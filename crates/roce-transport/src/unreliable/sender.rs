//! The send queue of a service without acknowledgements.

use core::time::Duration;

use roce_wire::Psn;

use super::pacer::Pacer;
use crate::context::Context;
use crate::qp::context::QpContext;
use crate::qp::send_queue::{SendEntry, SendQueue};
use crate::{AsyncEvent, CompletionStatus, Instant, Observer, QpState};

/// Requests that the driver's interface takes none of for this long are dropped, as they would be
/// by a network card without a link.
const MAX_UNSENT: Duration = Duration::from_secs(1);

/// Sends requests, and completes each when its last packet is handed to the driver.
#[derive(Debug)]
pub(super) struct Sender {
    pub(super) queue: SendQueue,
    /// The PSN of sequence number 0.
    first_psn: Psn,
    /// Sequence number of the next packet, part of the entry in front.
    pub(super) next: u64,
    pacer: Pacer,
    /// The static rate lets nothing leave yet.
    is_paced: bool,
    /// When everything in the queue is dropped.
    unsent_at: Option<Instant>,
    is_drained: bool,
}

impl Sender {
    pub(super) fn new(first_psn: Psn) -> Self {
        Self {
            queue: SendQueue::default(),
            first_psn,
            next: 0,
            pacer: Pacer::default(),
            is_paced: false,
            unsent_at: None,
            is_drained: false,
        }
    }

    /// The PSN of the next packet.
    pub(super) const fn psn(&self) -> Psn {
        self.first_psn.advanced_by((self.next % Psn::MODULUS as u64) as u32)
    }

    /// Returns true if a packet of the request in front may be sent in this state, now or later. In
    /// SQD only a message that was begun goes on.
    pub(super) fn has_requests(&self, state: QpState) -> bool {
        let Some(entry) = self.queue.front() else { return false };
        match state {
            QpState::ReadyToSend => true,
            QpState::SendQueueDrain => self.next > entry.first,
            _ => false,
        }
    }

    /// The request in front, if a packet of it may be sent now.
    #[inline]
    pub(super) fn sendable(&self, state: QpState, time: Instant) -> Option<SendEntry<'_>> {
        self.queue.front().filter(|_| self.has_requests(state) && self.pacer.may_send(time))
    }

    /// `packets` packets of the request in front were written.
    #[inline]
    pub(super) fn commit<O: Observer>(
        &mut self,
        packets: u64,
        qp: &QpContext,
        cx: &mut Context<'_, O>,
    ) {
        self.next += packets;
        if self.queue.front().is_some_and(|it| it.end() == self.next) {
            self.queue.complete_front(CompletionStatus::Success, qp, cx);
        }
    }

    /// A train of so many bytes was written; 0 if nothing may leave now.
    pub(super) fn on_train<O: Observer>(
        &mut self,
        bytes: usize,
        max_rate: Option<u64>,
        qp: &QpContext,
        cx: &mut Context<'_, O>,
    ) {
        if bytes > 0 {
            self.pacer.on_sent(max_rate, bytes, cx.time);
            self.is_paced = max_rate.is_some();
            self.unsent_at = None;
        }
        self.keep_timed(qp.state, cx.time);
        self.note_drained(qp, cx);
    }

    /// Ends all requests, the one in front with `status` if it is `Some`.
    pub(super) fn flush<O: Observer>(
        &mut self,
        status: Option<CompletionStatus>,
        qp: &QpContext,
        cx: &mut Context<'_, O>,
    ) {
        let mut status = status.unwrap_or(CompletionStatus::WorkRequestFlushed);
        while !self.queue.is_empty() {
            self.end_front(status, qp, cx);
            status = CompletionStatus::WorkRequestFlushed;
        }
        self.unsent_at = None;
    }

    /// Ends the request in front unsent, and skips the PSNs of its packets that were not sent.
    fn end_front<O: Observer>(
        &mut self,
        status: CompletionStatus,
        qp: &QpContext,
        cx: &mut Context<'_, O>,
    ) {
        if let Some(end) = self.queue.front().map(|it| it.end()) {
            self.next = end;
            self.queue.end_front(status, qp, cx);
        }
    }

    /// Arms the timer without which a request might never end.
    pub(super) fn keep_timed(&mut self, state: QpState, time: Instant) {
        if !self.has_requests(state) {
            self.unsent_at = None;
        } else if self.unsent_at.is_none() {
            self.unsent_at = Some(self.pacer.next_at().max(time) + MAX_UNSENT);
        }
    }

    /// Returns true if a timer ends every request that has to end.
    pub(super) fn is_timed(&self, state: QpState) -> bool {
        self.unsent_at.is_some() || !self.has_requests(state)
    }

    /// The next instant at which time changes something.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let unsent_at = self.unsent_at?;
        Some(if self.is_paced { self.pacer.next_at().min(unsent_at) } else { unsent_at })
    }

    /// Returns true if the next packet waits for its time.
    pub(super) const fn is_paced(&self) -> bool {
        self.is_paced
    }

    /// Lets the next train leave whose time has come, and drops what waits for an interface that has
    /// taken no frames since `taken_at`, for too long.
    pub(super) fn handle_timeout<O: Observer>(
        &mut self,
        taken_at: Instant,
        qp: &QpContext,
        cx: &mut Context<'_, O>,
    ) {
        self.is_paced &= !self.pacer.may_send(cx.time);
        if let Some(unsent_at) = &mut self.unsent_at {
            *unsent_at = (*unsent_at).max(taken_at + MAX_UNSENT);
        }
        if self.unsent_at.take_if(|at| *at <= cx.time).is_some() {
            // In SQD what was not begun waits for RTS.
            let is_draining = qp.state == QpState::SendQueueDrain;
            let count = if is_draining { 1 } else { self.queue.len() };
            cx.counters().unsent_dropped += count as u64;
            for _ in 0..count {
                // A window that was not bound is not reported as bound.
                let status = match self.queue.front() {
                    Some(it) if it.work.operation.is_local() => {
                        CompletionStatus::MemoryWindowBindError
                    }
                    _ => CompletionStatus::Success,
                };
                self.end_front(status, qp, cx);
            }
            self.note_drained(qp, cx);
        }
    }

    /// The queue is to be drained, or is used again.
    pub(super) fn set_draining(&mut self) {
        self.is_drained = false;
    }

    /// Returns true in SQD while a message that was begun is not sent.
    pub(super) fn is_draining(&self, state: QpState) -> bool {
        state == QpState::SendQueueDrain && !self.is_drained
    }

    /// Raises the event once the queue is drained.
    pub(super) fn note_drained<O: Observer>(&mut self, qp: &QpContext, cx: &mut Context<'_, O>) {
        if self.is_draining(qp.state) && !self.has_requests(qp.state) {
            self.is_drained = true;
            if qp.params.sqd_notify {
                cx.raise(AsyncEvent::SendQueueDrained { qpn: cx.qpn });
            }
        }
    }
}
