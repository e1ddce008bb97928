//! Failure of requests and of the queue pair, and the flush of what is posted.

use roce_wire::NakCode;

use super::RcQueuePair;
use super::responder::ResponderError;
use crate::context::Context;
use crate::{AsyncEvent, CompletionStatus, Observer, QpState, RequestFault};

impl RcQueuePair {
    /// The expected packet cannot be executed: sends a NAK and goes to ERROR.
    pub(super) fn fail_request<O: Observer>(
        &mut self,
        error: ResponderError,
        cx: &mut Context<'_, O>,
    ) {
        if matches!(error, ResponderError::CannotInvalidate) {
            // Whether it asks for an ACK or not: it is the last packet that gets one.
            self.responder.schedule_ack(cx);
        }
        if let ResponderError::Fault(fault) = error {
            let code = fault.nak_code();
            let psn = self.responder.expected;
            cx.out.observer.request_refused(cx.now, cx.qpn, psn, &fault);
            self.responder.push_nak(code);
            let qpn = cx.qpn;
            let counters = cx.counters();
            match code {
                NakCode::InvalidRequest => {
                    counters.nak_invalid_request += 1;
                    cx.raise(AsyncEvent::QpRequestError { qpn });
                }
                NakCode::RemoteAccess => {
                    counters.nak_remote_access += 1;
                    cx.raise(AsyncEvent::QpAccessError { qpn });
                }
                _ => {
                    counters.nak_remote_operational += 1;
                    // A receive tells the program by its completion, an access of the peer does not.
                    if matches!(fault, RequestFault::RemoteMemory(_)) {
                        cx.raise(AsyncEvent::QpFatal { qpn });
                    }
                }
            }
            if let Some(work) = self.responder.message.take_receive() {
                self.qp.complete_receive(&work, fault.receive_status(), cx);
            }
        }
        self.flush(None, cx);
    }

    /// Goes to ERROR: the request in front ends with `status`, or is flushed as everything else is
    /// if there is no status. Responses to requests that were executed still leave.
    pub(crate) fn fail<O: Observer>(
        &mut self,
        status: Option<CompletionStatus>,
        cx: &mut Context<'_, O>,
    ) {
        self.responder.cancel_pending_nak();
        self.flush(status, cx);
    }

    pub(super) fn flush<O: Observer>(
        &mut self,
        status: Option<CompletionStatus>,
        cx: &mut Context<'_, O>,
    ) {
        let was_failed = self.qp.state == QpState::Error;
        self.qp.set_state(QpState::Error, cx);
        self.timers.stop_all();
        self.drop_kept(&mut cx.out.reorder_budget);
        if let Some(status) = status {
            self.requester.send_mut().fail_front(status, &self.qp, cx);
        }
        self.requester.send_mut().flush(&self.qp, cx);
        if let Some(work) = self.responder.message.take_receive() {
            self.qp.complete_receive(&work, CompletionStatus::WorkRequestFlushed, cx);
        }
        self.receives.end(was_failed, &self.qp, cx);
    }
}
