//! Responses that arrived before a missing one: READ responses and answers to atomics are kept, and
//! handled when the gap closes.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use roce_wire::{Packet, Verified};

use super::{Completer, IncomingResponse};
use crate::context::DropReason;
use crate::rc::loss_recovery::DeferredNak;
use crate::rc::reorder_buffer::Arrival;
use crate::rc::requester::Requester;
use crate::rc::send_state::SendState;
use crate::reorder_budget::ReorderBudget;
use crate::{CompletionStatus, Memory, Observer, RetransmitCause};

impl Completer {
    /// Keeps a response with data that arrived before a missing one, which is requested again.
    #[cold]
    #[inline(never)]
    pub(super) fn keep_response<O: Observer>(
        &mut self,
        requester: &mut Requester,
        packet: &Packet<'_, Verified>,
        response: &mut IncomingResponse<'_, '_, O>,
    ) -> Result<(), CompletionStatus> {
        if !response.may_keep(requester) {
            return response.on_implied_nak(requester);
        }
        let expected = requester.send().psn(requester.send().unacked());
        let now = response.cx.time;
        let budget = &mut response.cx.out.reorder_budget;
        match self.early.keep(packet, expected, budget, now) {
            Arrival::Kept => response.cx.counters().reorder_kept += 1,
            Arrival::Duplicate => {
                requester.recovery_mut().on_duplicate(response.seq);
                response.cx.dropped(response.psn, DropReason::ReorderDuplicate);
            }
            Arrival::Differs => {
                response.cx.dropped(response.psn, DropReason::ReorderDiffers);
                return Ok(());
            }
            Arrival::NoRoom => {
                response.cx.counters().reorder_full += 1;
                return response.on_implied_nak(requester);
            }
            Arrival::TooFar => {
                response.cx.dropped(response.psn, DropReason::ReorderTooFar);
                return Ok(());
            }
        }
        let seq = response.seq;
        let recovery = requester.recovery_mut();
        if recovery.is_selective() && recovery.is_executed(seq) {
            // It may be part of a gap.
            recovery.note_gaps(seq..seq + 1, [], now);
            requester.arm_gap_timer(response.timers);
        }
        self.note_executed(requester, seq + 1, response);
        Ok(())
    }

    /// The peer has executed everything before `to`, and a response before that is missing.
    pub(super) fn note_executed<O: Observer>(
        &mut self,
        requester: &mut Requester,
        to: u64,
        response: &mut IncomingResponse<'_, '_, O>,
    ) {
        let now = response.cx.time;
        requester.on_executed(to, now);
        if let Some(span) = requester.take_executed_span(to) {
            let missing = self.missing_responses(requester.send(), span.clone());
            requester.recovery_mut().note_gaps(span, missing, now);
            requester.arm_gap_timer(response.timers);
        }
    }

    /// The responses of `span` that are neither handled nor kept.
    fn missing_responses(&self, send: &SendState, span: Range<u64>) -> Vec<Range<u64>> {
        let mut missing = vec![];
        let (unacked, expected) = (send.unacked(), send.psn(send.unacked()));
        let requests = send.reads().with_data_from(span.start);
        for request in requests.take_while(|it| it.start < span.end) {
            let mut at = request.start.max(span.start);
            let end = request.end.min(span.end);
            for psn in self.early.psns_from(send.psn(at), expected) {
                let seq = unacked + u64::try_from(psn.distance_from(expected)).unwrap_or(0);
                if seq >= end {
                    break;
                }
                if seq > at {
                    missing.push(at..seq);
                }
                at = at.max(seq + 1);
            }
            if at < end {
                missing.push(at..end);
            }
        }
        missing
    }

    /// Handles the kept responses that a gap held back, up to the next gap.
    ///
    /// # Errors
    /// As [`handle_response`](Self::handle_response).
    #[cold]
    #[inline(never)]
    pub(super) fn handle_kept<O: Observer>(
        &mut self,
        requester: &mut Requester,
        memory: &mut impl Memory,
        response: &mut IncomingResponse<'_, '_, O>,
    ) -> Result<(), CompletionStatus> {
        loop {
            response.acknowledge(requester, requester.recovery().executed_to());
            let send = requester.send();
            let Some(seq) = send.first_missing_response() else { break };
            let psn = send.psn(seq);
            let budget = &mut response.cx.out.reorder_budget;
            let Some(packet) = self.early.take(psn, budget) else { break };
            (response.seq, response.psn) = (seq, psn);
            let Some(request) = send.reads().find(seq) else { break };
            response.place(requester, request, &packet.view(), memory)?;
        }
        let unacked = requester.send().unacked();
        let deferred = requester.recovery_mut().take_deferred_nak(unacked);
        let executed_to = requester.recovery().executed_to();
        if executed_to > unacked {
            self.note_executed(requester, executed_to, response);
        } else if self.early.is_empty() {
            requester.recovery_mut().release_gaps();
        }
        let Some(nak) = deferred else { return Ok(()) };
        (response.seq, response.psn) = (unacked, requester.send().psn(unacked));
        match nak {
            DeferredNak::Rnr(timer) => response.begin_rnr_wait(requester, timer),
            DeferredNak::Sequence => response.on_loss(requester, RetransmitCause::SequenceNak),
        }
    }

    /// Drops the responses that are kept if they have been for long; they are requested again.
    pub(crate) fn drop_idle(&mut self, send: &SendState, budget: &mut ReorderBudget) {
        self.early.drop_idle(send.psn(send.unacked()), budget);
    }

    /// Drops the responses that are kept.
    pub(crate) fn drop_kept(&mut self, budget: &mut ReorderBudget) {
        self.early.clear(budget);
    }
}
