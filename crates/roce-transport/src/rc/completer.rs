//! The completer: handles the peer's responses and retires requests.

mod early_responses;
mod gap_reports;

use roce_wire::{Aeth, NakCode, Operation, Packet, PacketView, Psn, RnrTimer, Syndrome, Verified};

use crate::context::{Context, DropReason};
use crate::qp::context::QpContext;
use crate::rc::loss_recovery::{Action, DeferredNak};
use crate::rc::reorder_buffer::{MAX_AHEAD, ReorderBuffer};
use crate::rc::requester::Requester;
use crate::rc::send_state::{ReadRequest, ResponseKind};
use crate::request_fault::status_of;
use crate::timers::Timers;
use crate::transfer::scatter;
use crate::{CompletionStatus, Memory, Observer, RetransmitCause, WrData};

/// The part of a queue pair that handles responses: it tells the requester what is acknowledged and what
/// is missing, and places the data of READ responses and of answers to atomics.
#[derive(Debug, Default)]
pub(crate) struct Completer {
    /// Responses behind a missing one.
    early: ReorderBuffer,
}

/// A response, with what its handling needs.
struct IncomingResponse<'a, 'o, O> {
    /// Sequence number: in flight, or sent before the last retransmission.
    seq: u64,
    psn: Psn,
    qp: &'a QpContext,
    timers: &'a mut Timers,
    cx: &'a mut Context<'o, O>,
}

impl Completer {
    /// Handles a response of the peer.
    ///
    /// # Errors
    /// The request in front fails with this status.
    pub(crate) fn handle_response<O: Observer>(
        &mut self,
        requester: &mut Requester,
        qp: &QpContext,
        timers: &mut Timers,
        packet: &Packet<'_, Verified>,
        memory: &mut impl Memory,
        cx: &mut Context<'_, O>,
    ) -> Result<(), CompletionStatus> {
        let psn = packet.bth().psn();
        let send = requester.send();
        let (unacked, expected) = (send.unacked(), send.psn(send.unacked()));
        let seq = match u64::try_from(psn.distance_from(expected)) {
            Ok(ahead) => unacked + ahead,
            Err(_) => {
                let has_data = packet.operation() != Operation::Acknowledge;
                let behind = expected.distance_from(psn).unsigned_abs();
                // One from further behind is no late one, or not the peer's.
                let is_near = behind <= MAX_AHEAD;
                let seq = unacked.checked_sub(behind.into()).filter(|_| is_near);
                let recovery = requester.recovery_mut();
                if let Some(seq) = seq.filter(|_| has_data || recovery.peer_reports()) {
                    recovery.on_duplicate(seq);
                }
                //= rule rc-response-duplicate: InfiniBand, clause not known; rxe_comp.c: check_psn
                //# A response to what is acknowledged already changes nothing.
                cx.dropped(psn, DropReason::DuplicateResponse);
                return Ok(());
            }
        };
        //= rule rc-response-ghost: InfiniBand, clause not known
        //# A response to what was never sent changes nothing.
        if seq >= send.max_sent() {
            cx.dropped(psn, DropReason::ResponseNeverRequested);
            return Ok(());
        }
        if packet.bth().becn() {
            requester.on_becn(qp, cx);
        }
        let operation = packet.operation();
        let mut response = IncomingResponse { seq, psn, qp, timers, cx };
        match (operation, packet.view().aeth()) {
            (Operation::Acknowledge, Some(aeth)) => {
                self.on_acknowledge(requester, aeth, &mut response)?;
            }
            (Operation::ReadResponse | Operation::AtomicAck, aeth) => {
                if let Some(aeth) = aeth {
                    requester.send_mut().update_credits(aeth);
                }
                let is_atomic = operation == Operation::AtomicAck;
                let request = requester.send().reads().find(seq);
                //= rule rc-response-kind: InfiniBand, clause not known; rxe_comp.c: check_ack
                //# A READ has READ responses, and an atomic the answer to an atomic. FLUSH and ATOMIC WRITE
                //# have an empty READ response.
                let is_it = |it: &ReadRequest| (it.response == ResponseKind::Atomic) == is_atomic;
                let Some(request) = request.filter(is_it) else {
                    response.cx.dropped(psn, DropReason::UnexpectedResponse);
                    return Ok(());
                };
                if !response.acknowledge(requester, seq) {
                    return self.keep_response(requester, packet, &mut response);
                }
                response.place(requester, request, packet.view(), memory)?;
            }
            _ => response.cx.dropped(psn, DropReason::UnexpectedResponse),
        }
        if requester.recovery().knows_gaps() {
            return self.handle_kept(requester, memory, &mut response);
        }
        Ok(())
    }

    fn on_acknowledge<O: Observer>(
        &mut self,
        requester: &mut Requester,
        aeth: Aeth,
        response: &mut IncomingResponse<'_, '_, O>,
    ) -> Result<(), CompletionStatus> {
        match aeth.syndrome {
            Syndrome::Ack { .. } => {
                requester.send_mut().update_credits(aeth);
                let to = response.seq + 1;
                if response.acknowledge(requester, to) {
                    Ok(())
                } else {
                    self.on_early_ack(requester, to, response)
                }
            }
            Syndrome::RnrNak { timer } => self.on_rnr_nak(requester, timer, response),
            Syndrome::Nak(code) => self.on_nak(requester, code, response),
            Syndrome::Reserved(_) => {
                response.cx.dropped(response.psn, DropReason::ReservedSyndrome);
                Ok(())
            }
        }
    }

    /// The peer has executed everything before `to`, and a response before that is missing.
    #[cold]
    fn on_early_ack<O: Observer>(
        &mut self,
        requester: &mut Requester,
        to: u64,
        response: &mut IncomingResponse<'_, '_, O>,
    ) -> Result<(), CompletionStatus> {
        if !response.may_keep(requester) {
            return response.on_implied_nak(requester);
        }
        self.note_executed(requester, to, response);
        Ok(())
    }

    fn on_nak<O: Observer>(
        &mut self,
        requester: &mut Requester,
        code: NakCode,
        response: &mut IncomingResponse<'_, '_, O>,
    ) -> Result<(), CompletionStatus> {
        let (seq, psn) = (response.seq, response.psn);
        response.cx.out.observer.nak_received(response.cx.now, response.cx.qpn, psn, code);
        if code == NakCode::PsnSequence {
            response.cx.counters().rcvd_seq_err += 1;
        }
        // The peer expects this packet, so it has executed all before it.
        //= rule rc-nak-acknowledges: InfiniBand, clause not known; rxe_comp.c: check_ack
        //# A NAK acknowledges everything before its PSN.
        let all_here = response.acknowledge(requester, seq);
        if code != NakCode::PsnSequence {
            // A response that is missing before it will not arrive: the peer is in ERROR.
            response.cx.counters().fatal_nak_received += 1;
            //= rule rc-nak-status: InfiniBand, clause not known; rxe_comp.c: check_ack
            //# A NAK other than for a sequence error ends the oldest request with the status of its code,
            //# and the queue pair.
            return Err(status_of(code));
        }
        if requester.send().is_last_sent(seq) {
            // A responder sends this NAK when a packet behind the missing one arrives, and none was
            // sent: a forged packet drew it.
            response.cx.dropped(psn, DropReason::ResponseNeverRequested);
            return Ok(());
        }
        if all_here {
            return response.on_loss(requester, RetransmitCause::SequenceNak);
        }
        if !response.may_keep(requester) || !requester.recovery().may_be_selective() {
            return response.on_implied_nak(requester);
        }
        self.note_executed(requester, seq, response);
        if !requester.recovery().peer_keeps() {
            requester.recovery_mut().defer_nak(seq, DeferredNak::Sequence);
            return Ok(());
        }
        let action = requester.recovery_mut().on_gap(seq, response.cx.time);
        response.perform(requester, action)
    }

    fn on_rnr_nak<O: Observer>(
        &mut self,
        requester: &mut Requester,
        timer: RnrTimer,
        response: &mut IncomingResponse<'_, '_, O>,
    ) -> Result<(), CompletionStatus> {
        let (seq, psn) = (response.seq, response.psn);
        response.cx.counters().rcvd_rnr_err += 1;
        response.cx.out.observer.rnr_received(response.cx.now, response.cx.qpn, psn, timer);
        if response.acknowledge(requester, seq) {
            return response.begin_rnr_wait(requester, timer);
        }
        if !response.may_keep(requester) || !requester.recovery().may_be_selective() {
            return response.on_implied_nak(requester);
        }
        self.note_executed(requester, seq, response);
        requester.recovery_mut().defer_nak(seq, DeferredNak::Rnr(timer));
        Ok(())
    }
}

impl<O: Observer> IncomingResponse<'_, '_, O> {
    /// The peer has executed everything before `to`. Acknowledges it as far as no response is
    /// missing; returns false if one is.
    //= rule rc-ack-coalesced: InfiniBand, clause not known; rxe_comp.c: check_psn
    //# An acknowledgement is one of all requests before it.
    fn acknowledge(&mut self, requester: &mut Requester, to: u64) -> bool {
        let send = requester.send();
        if to <= send.unacked() {
            return true; // READ responses in order come with nothing to acknowledge
        }
        let missing = send.first_missing_response().filter(|missing| *missing < to);
        requester.advance(missing.unwrap_or(to), self.qp, self.timers, self.cx);
        missing.is_none()
    }

    /// Returns true if responses behind a missing one may be kept.
    fn may_keep(&self, requester: &Requester) -> bool {
        self.cx.config.max_reorder_bytes > 0 && !requester.recovery().is_in_rnr_wait()
    }

    /// A response is missing before this one: goes back to it.
    //= rule rc-implied-nak: InfiniBand, clause not known; rxe_comp.c: check_psn
    //# A response behind the missing one of a READ or atomic shows that this was lost, and is no
    //# success of it.
    fn on_implied_nak(&mut self, requester: &mut Requester) -> Result<(), CompletionStatus> {
        self.cx.dropped(self.psn, DropReason::ImpliedNak);
        self.on_loss(requester, RetransmitCause::ImpliedNak)
    }

    fn on_loss(
        &mut self,
        requester: &mut Requester,
        cause: RetransmitCause,
    ) -> Result<(), CompletionStatus> {
        requester.on_nak(cause, self.seq, self.qp, self.timers, self.cx)
    }

    /// The peer has no receive for the oldest packet.
    fn begin_rnr_wait(
        &mut self,
        requester: &mut Requester,
        timer: RnrTimer,
    ) -> Result<(), CompletionStatus> {
        let (wait, params) = (timer.duration(), &self.qp.params);
        let action = requester.recovery_mut().on_rnr_nak(wait, params, self.cx.time);
        self.perform(requester, action)
    }

    fn perform(
        &mut self,
        requester: &mut Requester,
        action: Action,
    ) -> Result<(), CompletionStatus> {
        requester.perform(action, self.qp, self.timers, self.cx)
    }

    /// Places the data of a READ response, or of the answer to an atomic: the oldest response that is
    /// outstanding, to `request`.
    fn place(
        &mut self,
        requester: &mut Requester,
        request: ReadRequest,
        packet: &PacketView<'_>,
        memory: &mut impl Memory,
    ) -> Result<(), CompletionStatus> {
        // All before it is acknowledged, so it belongs to the entry in front.
        let entry = requester.send().front().expect("a request that waits for an answer is queued");
        let (payload, is_last) = (packet.payload(), packet.position().is_last());
        let original = packet.atomic_ack().map_or(0, |it| it.original).to_ne_bytes();
        let (mut offset, mut data) = (0, &original[..]);
        if request.response == ResponseKind::Empty {
            return self.complete_empty(requester, payload, is_last);
        }
        if request.response == ResponseKind::Read {
            let mtu = self.qp.params.mtu;
            (offset, data) = (entry.offset_of(self.seq, mtu), payload);
            //= rule rc-read-response-len: InfiniBand, clause not known
            //# Each response to a READ has as many bytes as the path MTU, and the last one the rest.
            let expected_len = (entry.len - offset).min(mtu.bytes() as u64);
            let is_end = self.seq + 1 == request.end;
            //= rule rc-read-response-restart: rxe_comp.c: check_ack
            //# Responses to a READ that is repeated in part may begin as First, Middle or Last.
            let may_end = is_last == is_end || (!is_end && request.is_split);
            if payload.len() as u64 != expected_len || !may_end {
                self.cx.counters().bad_response += 1;
                return Err(CompletionStatus::BadResponse);
            }
        }
        if let WrData::Sges(list) = &entry.work.data
            && scatter(memory, self.qp.accessor(), list, offset, data).is_err()
        {
            self.cx.counters().local_protection_err += 1;
            return Err(CompletionStatus::LocalProtectionError);
        }
        requester.advance(self.seq + 1, self.qp, self.timers, self.cx);
        Ok(())
    }

    /// Handles the response to a FLUSH or ATOMIC WRITE.
    #[cold]
    fn complete_empty(
        &mut self,
        requester: &mut Requester,
        payload: &[u8],
        is_last: bool,
    ) -> Result<(), CompletionStatus> {
        if !payload.is_empty() || !is_last {
            self.cx.counters().bad_response += 1;
            return Err(CompletionStatus::BadResponse);
        }
        requester.advance(self.seq + 1, self.qp, self.timers, self.cx);
        Ok(())
    }
}
