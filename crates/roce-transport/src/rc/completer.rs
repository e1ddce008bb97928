//! The completer: takes the peer's answers and retires what they answer.

use roce_wire::{Aeth, NakCode, Operation, Packet, Psn, RnrTimer, Syndrome, Verified};

use crate::context::{Context, DropReason};
use crate::fault::status_of;
use crate::gate::PeerView;
use crate::rc::common::Common;
use crate::rc::sender::{NextNak, Sender};
use crate::timers::{Timer, Timers};
use crate::transfer::scatter;
use crate::{CompletionStatus, Memory, Observer, RetransmitCause, WrData};

impl Sender {
    /// Takes an answer of the peer's.
    ///
    /// # Errors
    /// The request in front fails and ends with this.
    pub(crate) fn handle_answer<O: Observer>(
        &mut self,
        common: &Common,
        timers: &mut Timers,
        packet: &Packet<'_, Verified>,
        memory: &mut impl Memory,
        cx: &mut Context<'_, O>,
    ) -> Result<(), CompletionStatus> {
        let headers = packet.headers();
        let psn = headers.bth.psn;
        let seq = match u64::try_from(psn.distance_from(self.psn(self.oldest))) {
            Ok(ahead) => self.oldest + ahead,
            Err(_behind) => {
                cx.dropped(psn, DropReason::DuplicateResponse);
                return Ok(());
            }
        };
        if seq >= self.sent_end {
            cx.dropped(psn, DropReason::ResponseNeverRequested);
            return Ok(());
        }
        let info = headers.bth.opcode.info();
        let mut part = Answer { seq, psn, common, timers, cx };
        match (info.operation, headers.aeth) {
            (Operation::Acknowledge, Some(aeth)) => self.on_acknowledge(aeth, &mut part),
            (Operation::ReadResponse, aeth) => {
                if let Some(aeth) = aeth {
                    self.note_credits(aeth);
                }
                self.on_read_response(packet.payload(), info.position.is_last(), memory, &mut part)
            }
            (Operation::AtomicAck, aeth) => {
                if let Some(aeth) = aeth {
                    self.note_credits(aeth);
                }
                let original = headers.atomic_ack.map_or(0, |it| it.original);
                self.on_atomic_ack(original, memory, &mut part)
            }
            _ => {
                part.cx.dropped(psn, DropReason::UnexpectedResponse);
                Ok(())
            }
        }
    }

    fn on_acknowledge<O: Observer>(
        &mut self,
        aeth: Aeth,
        at: &mut Answer<'_, '_, O>,
    ) -> Result<(), CompletionStatus> {
        match aeth.syndrome {
            Syndrome::Ack { .. } => {
                self.note_credits(aeth);
                let all_here = self.acknowledge(at.seq + 1, at);
                if all_here { Ok(()) } else { self.on_implied_nak(at) }
            }
            Syndrome::RnrNak { timer } => self.on_rnr_nak(timer, at),
            Syndrome::Nak(code) => self.on_nak(code, at),
            Syndrome::Reserved(_) => {
                at.cx.dropped(at.psn, DropReason::ReservedSyndrome);
                Ok(())
            }
        }
    }

    fn note_credits(&mut self, aeth: Aeth) {
        if let Syndrome::Ack { credits } = aeth.syndrome {
            self.credit.on_answer(aeth.msn, credits.count());
        }
    }

    /// The peer has executed everything before `to`. Settles it as far as no answer is
    /// missing; false if one is.
    fn acknowledge<O: Observer>(&mut self, to: u64, at: &mut Answer<'_, '_, O>) -> bool {
        let missing = self.reads.first_missing(self.oldest).filter(|missing| *missing < to);
        self.advance(missing.unwrap_or(to), at.common, at.timers, at.cx);
        missing.is_none()
    }

    /// The peer has answered something later than what is missing: the answer was lost, and
    /// is asked for again.
    fn on_implied_nak<O: Observer>(
        &mut self,
        at: &mut Answer<'_, '_, O>,
    ) -> Result<(), CompletionStatus> {
        at.cx.dropped(at.psn, DropReason::ImpliedNak);
        self.on_loss(RetransmitCause::ImpliedNak, at)
    }

    fn on_loss<O: Observer>(
        &mut self,
        why: RetransmitCause,
        at: &mut Answer<'_, '_, O>,
    ) -> Result<(), CompletionStatus> {
        if self.next_nak == NextNak::Echo || self.is_waiting_for_receiver {
            return Ok(());
        }
        let costs_a_retry = self.next_nak == NextNak::Retry;
        self.go_back(why, costs_a_retry, at.common, at.timers, at.cx)?;
        self.next_nak = NextNak::Echo;
        Ok(())
    }

    fn on_nak<O: Observer>(
        &mut self,
        code: NakCode,
        at: &mut Answer<'_, '_, O>,
    ) -> Result<(), CompletionStatus> {
        at.cx.out.observer.nak_received(at.cx.now, at.cx.qpn, at.psn, code);
        if code == NakCode::PsnSequence {
            at.cx.counters().rcvd_seq_err += 1;
        }
        // The peer waits for this very packet, so it has executed all before it.
        let all_here = self.acknowledge(at.seq, at);
        if code != NakCode::PsnSequence {
            // An answer that is missing before it will not come: the peer is in ERROR.
            at.cx.counters().fatal_nak_received += 1;
            return Err(status_of(code));
        }
        if all_here {
            self.on_loss(RetransmitCause::SequenceNak, at)
        } else {
            self.on_implied_nak(at)
        }
    }

    fn on_rnr_nak<O: Observer>(
        &mut self,
        timer: RnrTimer,
        at: &mut Answer<'_, '_, O>,
    ) -> Result<(), CompletionStatus> {
        at.cx.counters().rcvd_rnr_err += 1;
        at.cx.out.observer.rnr_received(at.cx.now, at.cx.qpn, at.psn, timer);
        if !self.acknowledge(at.seq, at) {
            return self.on_implied_nak(at);
        }
        if self.is_waiting_for_receiver {
            return Ok(());
        }
        if at.common.settings.rnr_retry.is_some() {
            let Some(left) = self.rnr_retries_left.checked_sub(1) else {
                at.cx.counters().retry_rnr_exceeded_err += 1;
                return Err(CompletionStatus::RnrRetryExceeded);
            };
            self.rnr_retries_left = left;
        }
        self.is_waiting_for_receiver = true;
        at.timers.stop(Timer::AckWait);
        at.timers.stop(Timer::Quiet);
        at.timers.arm(Timer::RnrWait, at.cx.time + timer.duration());
        Ok(())
    }

    fn on_read_response<O: Observer>(
        &mut self,
        payload: &[u8],
        is_last: bool,
        memory: &mut impl Memory,
        at: &mut Answer<'_, '_, O>,
    ) -> Result<(), CompletionStatus> {
        let Some(request) = self.reads.find(at.seq).filter(|it| !it.is_atomic) else {
            at.cx.dropped(at.psn, DropReason::UnexpectedResponse);
            return Ok(());
        };
        if !self.acknowledge(at.seq, at) {
            return self.on_implied_nak(at);
        }
        // All before it is settled, so it belongs to the entry in front.
        let entry = self.queue.front().expect("a request that waits for an answer is queued");
        let mtu = at.common.settings.mtu;
        let offset = entry.offset_of(at.seq, mtu);
        let expected_len = (entry.len - offset).min(mtu.bytes() as u64);
        if payload.len() as u64 != expected_len || is_last != (at.seq + 1 == request.end) {
            at.cx.counters().bad_response += 1;
            return Err(CompletionStatus::BadResponse);
        }
        if let WrData::Sges(list) = &entry.work.data
            && scatter(memory, at.common.init.pd, list, offset, payload).is_err()
        {
            at.cx.counters().local_protection_err += 1;
            return Err(CompletionStatus::LocalProtectionError);
        }
        self.advance(at.seq + 1, at.common, at.timers, at.cx);
        Ok(())
    }

    fn on_atomic_ack<O: Observer>(
        &mut self,
        original: u64,
        memory: &mut impl Memory,
        at: &mut Answer<'_, '_, O>,
    ) -> Result<(), CompletionStatus> {
        if self.reads.find(at.seq).is_none_or(|it| !it.is_atomic) {
            at.cx.dropped(at.psn, DropReason::UnexpectedResponse);
            return Ok(());
        }
        if !self.acknowledge(at.seq, at) {
            return self.on_implied_nak(at);
        }
        let entry = self.queue.front().expect("a request that waits for an answer is queued");
        if let WrData::Sges(list) = &entry.work.data
            && scatter(memory, at.common.init.pd, list, 0, &original.to_ne_bytes()).is_err()
        {
            at.cx.counters().local_protection_err += 1;
            return Err(CompletionStatus::LocalProtectionError);
        }
        self.advance(at.seq + 1, at.common, at.timers, at.cx);
        Ok(())
    }

    /// The ACK timer fired.
    ///
    /// # Errors
    /// As [`go_back`](Self::go_back).
    pub(crate) fn on_silence<O: Observer>(
        &mut self,
        common: &Common,
        peer: PeerView,
        timers: &mut Timers,
        cx: &mut Context<'_, O>,
    ) -> Result<(), CompletionStatus> {
        let Some(wait) = common.settings.ack_timeout else { return Ok(()) };
        if !self.has_to_end() || self.is_waiting_for_receiver {
            return Ok(());
        }
        if self.is_unsent {
            // Others may have their turn first as long as the peer answers them, or they give up.
            if !peer.is_shut && peer.changed_at + wait <= cx.time {
                cx.counters().ack_timeout += 1;
                self.spend_retry(cx)?;
            }
            timers.arm(Timer::AckWait, cx.time + wait);
            return Ok(());
        }
        if self.goes_on_waiting(wait, timers, cx.time) {
            return Ok(());
        }
        cx.counters().ack_timeout += 1;
        self.go_back(RetransmitCause::AckTimeout, true, common, timers, cx)?;
        self.next_nak = NextNak::Free;
        Ok(())
    }

    /// The time that the peer asked for in an RNR NAK has passed.
    ///
    /// # Errors
    /// As [`go_back`](Self::go_back).
    pub(crate) fn on_receiver_wait_over<O: Observer>(
        &mut self,
        common: &Common,
        timers: &mut Timers,
        cx: &mut Context<'_, O>,
    ) -> Result<(), CompletionStatus> {
        if !self.is_waiting_for_receiver {
            return Ok(());
        }
        self.is_waiting_for_receiver = false;
        self.go_back(RetransmitCause::RnrTimeout, false, common, timers, cx)?;
        self.next_nak = NextNak::Free;
        Ok(())
    }
}

/// An answer that is being taken, and who takes part in that.
struct Answer<'a, 'o, O> {
    /// Its sequence number: in flight, or sent before we last went back.
    seq: u64,
    psn: Psn,
    common: &'a Common,
    timers: &'a mut Timers,
    cx: &'a mut Context<'o, O>,
}
