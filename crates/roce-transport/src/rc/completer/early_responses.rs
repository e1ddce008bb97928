//! Responses that arrived before a missing one: READ responses and answers to atomics are kept, and
//! handled when the gap closes.

use core::ops::Range;

use roce_wire::{Packet, Verified};

use super::IncomingResponse;
use crate::context::DropReason;
use crate::rc::reorder_buffer::{Arrival, ReorderBudget};
use crate::rc::requester::Requester;
use crate::{CompletionStatus, Memory, Observer, RetransmitCause};

impl Requester {
    /// Returns true if responses behind a missing one may be kept.
    pub(super) fn keeps_responses<O: Observer>(
        &self,
        response: &IncomingResponse<'_, '_, O>,
    ) -> bool {
        response.cx.config.max_reorder_bytes > 0 && !self.in_rnr_wait
    }

    /// Keeps a response with data that arrived before a missing one, which is requested again.
    #[cold]
    #[inline(never)]
    pub(super) fn keep_response<O: Observer>(
        &mut self,
        packet: &Packet<'_, Verified>,
        response: &mut IncomingResponse<'_, '_, O>,
    ) -> Result<(), CompletionStatus> {
        if !self.keeps_responses(response) {
            return self.on_implied_nak(response);
        }
        let expected = self.psn(self.unacked);
        let now = response.cx.time;
        let budget = &mut response.cx.out.reorder_budget;
        match self.known().early.keep(packet, expected, budget, now) {
            Arrival::Kept => response.cx.counters().reorder_kept += 1,
            Arrival::Duplicate => {
                self.recovery.on_duplicate(response.seq);
                response.cx.dropped(response.psn, DropReason::ReorderDuplicate);
            }
            Arrival::Differs => {
                response.cx.dropped(response.psn, DropReason::ReorderDiffers);
                return Ok(());
            }
            Arrival::NoRoom => {
                response.cx.counters().reorder_full += 1;
                return self.on_implied_nak(response);
            }
            Arrival::TooFar => {
                response.cx.dropped(response.psn, DropReason::ReorderTooFar);
                return Ok(());
            }
        }
        let seq = response.seq;
        if self.recovery.is_selective() && seq < self.known().executed_to {
            // It may be part of a gap.
            self.note_gaps(seq..seq + 1, [], response.timers, response.cx);
        }
        self.note_executed(seq + 1, response);
        Ok(())
    }

    /// The peer has executed everything before `to`, and a response before that is missing.
    pub(super) fn note_executed<O: Observer>(
        &mut self,
        to: u64,
        response: &mut IncomingResponse<'_, '_, O>,
    ) {
        self.recovery.on_executed(to, response.cx.time);
        self.recovery.note_evidence(to, self.next);
        if let Some(position) = self.recovery.undo_nak(to, self.next, response.cx.time) {
            (self.next, self.current_wqe) = position;
        }
        let (unacked, next) = (self.unacked, self.next);
        let known = self.known();
        let start = if known.gaps.is_empty() { unacked } else { known.executed_to.max(unacked) };
        known.executed_to = known.executed_to.max(to);
        // What is behind `next` is about to be requested again.
        let end = known.executed_to.min(next);
        if start < end && self.recovery.may_be_selective() {
            let missing = self.missing_responses(start..end);
            self.note_gaps(start..end, missing, response.timers, response.cx);
        }
    }

    /// The responses of `span` that are neither handled nor kept.
    fn missing_responses(&self, span: Range<u64>) -> Vec<Range<u64>> {
        let mut missing = vec![];
        for request in self.reads.iter_from(span.start).take_while(|it| it.start < span.end) {
            let mut at = request.start.max(span.start);
            let end = request.end.min(span.end);
            let expected = self.psn(self.unacked);
            let early = self.known.as_ref().map(|it| it.early.psns_from(self.psn(at), expected));
            for psn in early.into_iter().flatten() {
                let seq = self.unacked + u64::try_from(psn.distance_from(expected)).unwrap_or(0);
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
        memory: &mut impl Memory,
        response: &mut IncomingResponse<'_, '_, O>,
    ) -> Result<(), CompletionStatus> {
        while let Some(known) = &self.known {
            self.acknowledge(known.executed_to, response);
            let Some(seq) = self.reads.first_missing(self.unacked) else { break };
            let psn = self.psn(seq);
            let budget = &mut response.cx.out.reorder_budget;
            let Some(packet) = self.known().early.take(psn, budget) else { break };
            (response.seq, response.psn) = (seq, psn);
            let (headers, payload) = packet.parts();
            let Some(request) = self.reads.find(seq) else { break };
            let original = headers.atomic_ack.map(|it| it.original);
            let is_last = headers.bth.opcode.info().position.is_last();
            self.on_data(request, original, payload, is_last, memory, response)?;
        }
        let unacked = self.unacked;
        let Some(known) = &mut self.known else { return Ok(()) };
        let (executed_to, nak) = (known.executed_to, known.nak.take_if(|seq| *seq <= unacked));
        let rnr_nak = known.rnr_nak.take_if(|(seq, _)| *seq <= unacked);
        if executed_to > unacked {
            self.note_executed(executed_to, response);
        } else if known.gaps.is_empty() && known.early.is_empty() {
            self.known = None;
        }
        if let Some((seq, timer)) = rnr_nak.filter(|(seq, _)| *seq == unacked) {
            (response.seq, response.psn) = (seq, self.psn(seq));
            return self.begin_rnr_wait(timer, response);
        }
        match nak.filter(|seq| *seq == unacked) {
            Some(seq) => {
                (response.seq, response.psn) = (seq, self.psn(seq));
                self.on_loss(RetransmitCause::SequenceNak, response)
            }
            None => Ok(()),
        }
    }

    /// Drops the responses that are kept if they have been for long; they are requested again.
    pub(crate) fn drop_idle(&mut self, budget: &mut ReorderBudget) {
        let expected = self.psn(self.unacked);
        if let Some(known) = &mut self.known {
            known.early.drop_idle(expected, budget);
        }
    }

    /// Drops the responses that are kept.
    pub(crate) fn drop_kept(&mut self, budget: &mut ReorderBudget) {
        if let Some(known) = &mut self.known {
            known.early.clear(budget);
        }
    }
}
