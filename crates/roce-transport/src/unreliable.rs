//! Queue pairs without acknowledgements: unreliable connection and unreliable datagram.
//!
//! | module | contents |
//! |---|---|
//! | `ud` | datagrams: one packet each, to any destination |
//! | `uc` | messages to one peer; a gap drops the message |
//! | `sender`, `pacer` | the send queue of both, and its static rate |
//!
//! What is lost stays lost. A request completes when its last packet is handed to the driver, so
//! the sender is as fast as the driver's interface, or as its static rate.

mod pacer;
mod sender;
pub(crate) mod uc;
pub(crate) mod ud;

use roce_wire::Service;

use self::sender::Sender;
use crate::context::Context;
use crate::qp::context::QpContext;
use crate::qp::modify;
use crate::qp::receive_queue::ReceiveQueue;
use crate::qp::receives::Receives;
use crate::qp::validate::validate_send;
use crate::tx_demand::{PendingResponses, TxDemand};
use crate::{
    CompletionStatus, InlineData, Instant, ModifyError, Observer, PostError, QpAttributes, QpInfo,
    QpState, RecvWr, SendWr,
};

/// What UC and UD queue pairs share: state, send queue and receives.
#[derive(Debug)]
pub(crate) struct Unreliable {
    qp: QpContext,
    sender: Sender,
    receives: Receives,
}

impl Unreliable {
    /// A queue pair in RESET.
    fn new(qp: QpContext) -> Self {
        Self { sender: Sender::new(Default::default()), receives: Receives::of(&qp.init), qp }
    }

    /// Sets attributes and goes to another state. Returns the states before and after.
    fn modify<O: Observer>(
        &mut self,
        asked: &QpAttributes,
        cx: &mut Context<'_, O>,
    ) -> Result<(QpState, QpState), ModifyError> {
        let from = self.qp.state;
        let to = modify::validate(self.qp.init.service, from, asked)?;
        if to == QpState::Reset {
            *self = Self::new(self.qp.reset());
            cx.out.observer.state_changed(cx.now, cx.qpn, from, to);
            return Ok((from, to));
        }
        self.qp.attributes.merge(asked);
        self.qp.params.take(asked);
        match (from, to) {
            (_, QpState::Error) => {
                self.fail(cx);
                return Ok((from, to));
            }
            (QpState::ReadyToReceive, QpState::ReadyToSend) => {
                self.sender = Sender::new(asked.sq_psn.unwrap_or_default());
            }
            (QpState::ReadyToSend, QpState::SendQueueDrain) => self.sender.set_draining(),
            _ => {}
        }
        self.qp.set_state(to, cx);
        self.sender.note_drained(&self.qp, cx);
        self.keep_timed(cx.time);
        Ok((from, to))
    }

    /// Fails if the request could not be posted behind `ahead` others.
    pub(crate) fn check_send(&self, work: &SendWr, ahead: usize) -> Result<(), PostError> {
        validate_send(work, &self.qp, self.sender.queue.len() + ahead).map(|_| ())
    }

    pub(crate) fn take_inline_buffer(&mut self) -> InlineData {
        self.sender.queue.take_inline_buffer()
    }

    fn post_send<O: Observer>(
        &mut self,
        work: SendWr,
        cx: &mut Context<'_, O>,
    ) -> Result<(), PostError> {
        let (len, packets) = validate_send(&work, &self.qp, self.sender.queue.len())?;
        self.sender.queue.reserve()?;
        // The path MTU of a datagram is its destination's.
        let packets = if self.qp.init.service == Service::Ud { 1 } else { packets };
        let operation = work.operation.completion_operation();
        cx.out.observer.posted_send(cx.now, cx.qpn, work.wr_id, operation, len);
        self.sender.queue.push(work, len, packets);
        if !self.qp.state.is_sending() {
            self.sender.flush(None, &self.qp, cx);
        }
        Ok(())
    }

    /// Posts a receive; `held` others are taken and may be put back.
    pub(crate) fn post_recv<O: Observer>(
        &mut self,
        work: RecvWr,
        held: u32,
        cx: &mut Context<'_, O>,
    ) -> Result<(), PostError> {
        self.receives.post(work, held, &self.qp, cx)
    }

    /// The request in front fails with `status`, or is flushed without one: sending stops, receiving
    /// goes on.
    //= rule qp-send-queue-error: InfiniBand 10.3.1
    //# A local error of a request of UC or UD flushes the send queue and takes it to SQE; receiving
    //# goes on, and a move to RTS starts it again.
    pub(crate) fn fail_send<O: Observer>(
        &mut self,
        status: Option<CompletionStatus>,
        cx: &mut Context<'_, O>,
    ) {
        let is_protection = status == Some(CompletionStatus::LocalProtectionError);
        cx.counters().local_protection_err += u64::from(is_protection);
        self.qp.set_state(QpState::SendQueueError, cx);
        self.sender.flush(status, &self.qp, cx);
    }

    /// Goes to ERROR and flushes what is posted.
    fn fail<O: Observer>(&mut self, cx: &mut Context<'_, O>) {
        let was_failed = self.qp.state == QpState::Error;
        self.qp.set_state(QpState::Error, cx);
        self.sender.flush(None, &self.qp, cx);
        self.receives.end(was_failed, &self.qp, cx);
    }

    pub(crate) fn handle_timeout<O: Observer>(
        &mut self,
        taken_at: Instant,
        cx: &mut Context<'_, O>,
    ) {
        self.sender.handle_timeout(taken_at, &self.qp, cx);
    }

    pub(crate) fn keep_timed(&mut self, time: Instant) {
        self.sender.keep_timed(self.qp.state, time);
    }

    pub(crate) fn is_timed(&self) -> bool {
        self.sender.is_timed(self.qp.state)
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.sender.poll_timeout()
    }

    /// Returns what is left to send.
    pub(crate) fn demand(&self) -> TxDemand {
        TxDemand {
            requests: self.sender.has_requests(self.qp.state),
            is_paced: self.sender.is_paced(),
            repairs: false,
            responses: PendingResponses::None,
        }
    }

    /// Returns true if requests may be sent: no acknowledgement tells that none are under way.
    pub(crate) const fn has_outstanding(&self) -> bool {
        self.qp.state.is_sending()
    }

    pub(crate) const fn context(&self) -> &QpContext {
        &self.qp
    }

    /// Returns attributes and state.
    pub(crate) fn info(&self) -> QpInfo {
        let QpContext { init, state, mut attributes, .. } = self.qp;
        attributes.state = Some(state);
        attributes.current_state = Some(state);
        if attributes.sq_psn.is_some() {
            attributes.sq_psn = Some(self.sender.psn());
        }
        QpInfo {
            init,
            state,
            attributes,
            is_draining: self.sender.is_draining(state),
            sends_outstanding: self.sender.queue.len() as u32, // at most `MAX_WR`
            receives_posted: self.receives.own().map_or(0, ReceiveQueue::len),
        }
    }
}
