//! The completer: handles the peer's responses and retires requests.

mod early_responses;
mod gap_reports;
pub(crate) mod gaps;
pub(crate) mod keeping_peer;
pub(crate) mod loss_recovery;
mod rtt;
pub(crate) mod selective_repeat;

use roce_wire::{Aeth, NakCode, Operation, Packet, Psn, RnrTimer, Syndrome, Verified};

use crate::context::{Context, DropReason};
use crate::endpoint::peer_window::PeerView;
use crate::qp::context::QpContext;
use crate::rc::reorder_buffer::MAX_AHEAD;
use crate::rc::requester::outstanding_reads::ReadRequest;
use crate::rc::requester::{NakAction, Requester};
use crate::request_fault::status_of;
use crate::timers::{Timer, Timers};
use crate::transfer::scatter;
use crate::{CompletionStatus, Memory, Observer, RetransmitCause, WrData};

impl Requester {
    /// Handles a response of the peer.
    ///
    /// # Errors
    /// The request in front fails with this status.
    pub(crate) fn handle_response<O: Observer>(
        &mut self,
        qp: &QpContext,
        timers: &mut Timers,
        packet: &Packet<'_, Verified>,
        memory: &mut impl Memory,
        cx: &mut Context<'_, O>,
    ) -> Result<(), CompletionStatus> {
        let headers = packet.headers();
        let psn = headers.bth.psn;
        let seq = match u64::try_from(psn.distance_from(self.psn(self.unacked))) {
            Ok(ahead) => self.unacked + ahead,
            Err(_) => {
                let has_data = headers.bth.opcode.info().operation != Operation::Acknowledge;
                let behind = self.psn(self.unacked).distance_from(psn).unsigned_abs();
                // One from further behind is no late one, or not the peer's.
                let is_near = behind <= MAX_AHEAD;
                let seq = self.unacked.checked_sub(behind.into()).filter(|_| is_near);
                if let Some(seq) = seq.filter(|_| has_data || self.recovery.peer_reports()) {
                    self.recovery.on_duplicate(seq);
                }
                cx.dropped(psn, DropReason::DuplicateResponse);
                return Ok(());
            }
        };
        if seq >= self.max_sent {
            cx.dropped(psn, DropReason::ResponseNeverRequested);
            return Ok(());
        }
        if headers.bth.becn {
            self.on_becn(qp, cx);
        }
        let info = headers.bth.opcode.info();
        let mut response = IncomingResponse { seq, psn, qp, timers, cx };
        match (info.operation, headers.aeth) {
            (Operation::Acknowledge, Some(aeth)) => self.on_acknowledge(aeth, &mut response)?,
            (Operation::ReadResponse | Operation::AtomicAck, aeth) => {
                if let Some(aeth) = aeth {
                    self.update_credits(aeth);
                }
                let is_atomic = info.operation == Operation::AtomicAck;
                let Some(request) = self.reads.find(seq).filter(|it| it.is_atomic == is_atomic)
                else {
                    response.cx.dropped(psn, DropReason::UnexpectedResponse);
                    return Ok(());
                };
                if !self.acknowledge(seq, &mut response) {
                    // A copy, or a packet in order would stay in memory too.
                    return self.keep_response(&core::hint::black_box(*packet), &mut response);
                }
                let original = headers.atomic_ack.map(|it| it.original);
                let is_last = info.position.is_last();
                self.on_data(request, original, packet.payload(), is_last, memory, &mut response)?;
            }
            _ => response.cx.dropped(psn, DropReason::UnexpectedResponse),
        }
        if self.known.is_some() {
            return self.handle_kept(memory, &mut response);
        }
        Ok(())
    }

    fn on_acknowledge<O: Observer>(
        &mut self,
        aeth: Aeth,
        response: &mut IncomingResponse<'_, '_, O>,
    ) -> Result<(), CompletionStatus> {
        match aeth.syndrome {
            Syndrome::Ack { .. } => {
                self.update_credits(aeth);
                let to = response.seq + 1;
                if self.acknowledge(to, response) {
                    Ok(())
                } else {
                    self.on_early_ack(to, response)
                }
            }
            Syndrome::RnrNak { timer } => self.on_rnr_nak(timer, response),
            Syndrome::Nak(code) => self.on_nak(code, response),
            Syndrome::Reserved(_) => {
                response.cx.dropped(response.psn, DropReason::ReservedSyndrome);
                Ok(())
            }
        }
    }

    /// Returns true if no packet behind that of `seq` was ever sent.
    fn is_last_sent(&self, seq: u64) -> bool {
        self.reads.find(seq).map_or(seq + 1, |it| it.end) >= self.max_sent
    }

    fn update_credits(&mut self, aeth: Aeth) {
        if let Syndrome::Ack { credits } = aeth.syndrome {
            self.credit.update(aeth.msn, credits.count());
        }
    }

    /// The peer has executed everything before `to`. Acknowledges it as far as no response is
    /// missing; returns false if one is.
    fn acknowledge<O: Observer>(
        &mut self,
        to: u64,
        response: &mut IncomingResponse<'_, '_, O>,
    ) -> bool {
        if to <= self.unacked {
            return true; // READ responses in order come with nothing to acknowledge
        }
        let missing = self.reads.first_missing(self.unacked).filter(|missing| *missing < to);
        self.advance(missing.unwrap_or(to), response.qp, response.timers, response.cx);
        missing.is_none()
    }

    /// The peer has executed everything before `to`, and a response before that is missing.
    #[cold]
    fn on_early_ack<O: Observer>(
        &mut self,
        to: u64,
        response: &mut IncomingResponse<'_, '_, O>,
    ) -> Result<(), CompletionStatus> {
        if !self.keeps_responses(response) {
            return self.on_implied_nak(response);
        }
        self.note_executed(to, response);
        Ok(())
    }

    /// A response is missing before one that arrived: goes back to it.
    fn on_implied_nak<O: Observer>(
        &mut self,
        response: &mut IncomingResponse<'_, '_, O>,
    ) -> Result<(), CompletionStatus> {
        response.cx.dropped(response.psn, DropReason::ImpliedNak);
        self.on_loss(RetransmitCause::ImpliedNak, response)
    }

    fn on_loss<O: Observer>(
        &mut self,
        cause: RetransmitCause,
        response: &mut IncomingResponse<'_, '_, O>,
    ) -> Result<(), CompletionStatus> {
        if self.nak_action == NakAction::Ignore || self.in_rnr_wait {
            return Ok(());
        }
        let costs_a_retry = self.nak_action == NakAction::CountRetry;
        if cause == RetransmitCause::SequenceNak && self.recovery.peer_keeps() {
            self.recovery.note_nak(response.seq);
        }
        // Where everything is about to be sent again a repair has nothing to resume.
        let may_repair = self.next > self.unacked && self.recovery.peer_keeps();
        if cause == RetransmitCause::SequenceNak && may_repair {
            if costs_a_retry {
                self.spend_retry(response.cx)?;
            }
            self.nak_action = NakAction::Ignore;
            // The peer has responded, and the repair may wait for a packet that is late. Once until there is
            // progress, since other NAKs are ignored.
            if let Some(wait) = response.qp.params.ack_timeout {
                response.timers.arm(Timer::AckTimeout, response.cx.time + wait);
            }
            if self.recovery.may_be_selective()
                && (self.recovery.is_selective() || self.recovery.peer_reports())
            {
                let gap = response.seq..response.seq + 1;
                self.note_gaps(gap.clone(), [gap], response.timers, response.cx);
                return Ok(());
            }
            self.react_to_loss(1, response.cx);
            match self.recovery.on_gap(response.cx.time) {
                Some(until) => response.timers.arm(Timer::Probe, until),
                None => self.repair(1, response.qp, response.timers, response.cx),
            }
            return Ok(());
        }
        self.go_back_n(cause, costs_a_retry, response.qp, response.timers, response.cx)?;
        self.nak_action = NakAction::Ignore;
        Ok(())
    }

    fn on_nak<O: Observer>(
        &mut self,
        code: NakCode,
        response: &mut IncomingResponse<'_, '_, O>,
    ) -> Result<(), CompletionStatus> {
        response.cx.out.observer.nak_received(response.cx.now, response.cx.qpn, response.psn, code);
        if code == NakCode::PsnSequence {
            response.cx.counters().rcvd_seq_err += 1;
        }
        // The peer expects this packet, so it has executed all before it.
        let all_here = self.acknowledge(response.seq, response);
        if code != NakCode::PsnSequence {
            // A response that is missing before it will not arrive: the peer is in ERROR.
            response.cx.counters().fatal_nak_received += 1;
            return Err(status_of(code));
        }
        if self.is_last_sent(response.seq) {
            // A responder sends this NAK when a packet behind the missing one arrives, and none was sent: a
            // forged packet drew it.
            response.cx.dropped(response.psn, DropReason::ResponseNeverRequested);
            return Ok(());
        }
        if all_here {
            return self.on_loss(RetransmitCause::SequenceNak, response);
        }
        if !self.keeps_responses(response) || !self.recovery.may_be_selective() {
            return self.on_implied_nak(response);
        }
        self.note_executed(response.seq, response);
        if self.recovery.peer_keeps() {
            let gap = response.seq..response.seq + 1;
            self.note_gaps(gap.clone(), [gap], response.timers, response.cx);
        } else {
            self.known().nak = Some(response.seq);
        }
        Ok(())
    }

    fn on_rnr_nak<O: Observer>(
        &mut self,
        timer: RnrTimer,
        response: &mut IncomingResponse<'_, '_, O>,
    ) -> Result<(), CompletionStatus> {
        response.cx.counters().rcvd_rnr_err += 1;
        response.cx.out.observer.rnr_received(
            response.cx.now,
            response.cx.qpn,
            response.psn,
            timer,
        );
        if self.acknowledge(response.seq, response) {
            return self.begin_rnr_wait(timer, response);
        }
        if !self.keeps_responses(response) || !self.recovery.may_be_selective() {
            return self.on_implied_nak(response);
        }
        self.note_executed(response.seq, response);
        self.known().rnr_nak = Some((response.seq, timer));
        Ok(())
    }

    /// The peer has no receive for the oldest packet.
    fn begin_rnr_wait<O: Observer>(
        &mut self,
        timer: RnrTimer,
        response: &mut IncomingResponse<'_, '_, O>,
    ) -> Result<(), CompletionStatus> {
        if self.in_rnr_wait {
            return Ok(());
        }
        if response.qp.params.rnr_retry.is_some() {
            let Some(left) = self.rnr_retries_left.checked_sub(1) else {
                response.cx.counters().retry_rnr_exceeded_err += 1;
                return Err(CompletionStatus::RnrRetryExceeded);
            };
            self.rnr_retries_left = left;
        }
        // The peer has received the oldest packet. Losses between its RNR NAKs are not losses in a
        // row: without this they would use up the retries of a request that waits for a receive.
        self.retries_left = response.qp.params.retry_count;
        self.recovery.on_rnr_nak();
        self.in_rnr_wait = true;
        response.timers.stop(Timer::AckTimeout);
        response.timers.stop(Timer::Probe);
        response.timers.arm(Timer::RnrTimeout, response.cx.time + timer.duration());
        Ok(())
    }

    /// Places the data of a READ response, or of the answer to an atomic: the oldest response that is
    /// outstanding, to `request`.
    // The headers as values: a packet whose address is taken stays in memory, for 58 instructions.
    fn on_data<O: Observer>(
        &mut self,
        request: ReadRequest,
        original: Option<u64>,
        payload: &[u8],
        is_last: bool,
        memory: &mut impl Memory,
        response: &mut IncomingResponse<'_, '_, O>,
    ) -> Result<(), CompletionStatus> {
        // All before it is acknowledged, so it belongs to the entry in front.
        let entry = self.queue.front().expect("a request that waits for an answer is queued");
        let original = original.unwrap_or(0).to_ne_bytes();
        let (mut offset, mut data) = (0, &original[..]);
        if !request.is_atomic {
            let mtu = response.qp.params.mtu;
            (offset, data) = (entry.offset_of(response.seq, mtu), payload);
            let expected_len = (entry.len - offset).min(mtu.bytes() as u64);
            let is_end = response.seq + 1 == request.end;
            let may_end = is_last == is_end || (!is_end && request.is_split);
            if payload.len() as u64 != expected_len || !may_end {
                response.cx.counters().bad_response += 1;
                return Err(CompletionStatus::BadResponse);
            }
        }
        if let WrData::Sges(list) = &entry.work.data
            && scatter(memory, response.qp.accessor(), list, offset, data).is_err()
        {
            response.cx.counters().local_protection_err += 1;
            return Err(CompletionStatus::LocalProtectionError);
        }
        self.advance(response.seq + 1, response.qp, response.timers, response.cx);
        Ok(())
    }

    /// The local ACK timeout expired.
    ///
    /// # Errors
    /// As [`go_back_n`](Self::go_back_n).
    pub(crate) fn on_ack_timeout<O: Observer>(
        &mut self,
        qp: &QpContext,
        peer: PeerView,
        timers: &mut Timers,
        cx: &mut Context<'_, O>,
    ) -> Result<(), CompletionStatus> {
        let Some(wait) = qp.params.ack_timeout else { return Ok(()) };
        if !self.has_to_end() || self.in_rnr_wait {
            return Ok(());
        }
        if self.is_unsent {
            // Other queue pairs may be first as long as the peer responds to them.
            if !peer.is_blocked && peer.changed_at + wait <= cx.time {
                cx.counters().ack_timeout += 1;
                self.spend_retry(cx)?;
            }
            timers.arm(Timer::AckTimeout, cx.time + wait);
            return Ok(());
        }
        if self.extend_ack_timeout(wait, timers, cx.time) {
            return Ok(());
        }
        cx.counters().ack_timeout += 1;
        self.go_back_n(RetransmitCause::AckTimeout, true, qp, timers, cx)?;
        self.nak_action = NakAction::NoRetryCost;
        Ok(())
    }

    /// The wait that an RNR NAK requires has passed.
    ///
    /// # Errors
    /// As [`go_back_n`](Self::go_back_n).
    pub(crate) fn on_rnr_timeout<O: Observer>(
        &mut self,
        qp: &QpContext,
        timers: &mut Timers,
        cx: &mut Context<'_, O>,
    ) -> Result<(), CompletionStatus> {
        if !self.in_rnr_wait {
            return Ok(());
        }
        self.in_rnr_wait = false;
        self.go_back_n(RetransmitCause::RnrTimeout, false, qp, timers, cx)?;
        self.nak_action = NakAction::NoRetryCost;
        Ok(())
    }
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
