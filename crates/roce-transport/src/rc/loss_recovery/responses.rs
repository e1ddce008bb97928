//! What a response of the peer says of losses.

use core::time::Duration;

use super::LossRecovery;
use super::action::{Acknowledged, Action};
use super::phase::{Phase, RepairStep, Trigger};
use super::retries::{NakHandling, Retries};
use crate::qp::context::QpParams;
use crate::rc::send_state::{SendPosition, SendState};
use crate::{CompletionStatus, Instant, RetransmitCause};

/// How their number grows with each response.
const RESENT_GROWTH: u32 = 4;
/// Maximum packets of a repair.
const MAX_REPAIR: u32 = 8;

impl LossRecovery {
    /// Everything before `to` is acknowledged, some of it for the first time; `send` is as it was before.
    /// `is_telling`: not by a response with data, which does not show what of the packets behind it has
    /// arrived.
    #[inline]
    pub(crate) fn on_acknowledged(
        &mut self,
        to: u64,
        is_telling: bool,
        send: &SendState,
        params: &QpParams,
        now: Instant,
    ) -> Acknowledged {
        //= rule rc-retries-reset: InfiniBand, clause not known; rxe_comp.c: reset_retry_counters
        //# Progress gives the retries back.
        self.retries = Retries::new(params);
        if self.phase == Phase::Open {
            self.rtt.on_acknowledged(to, now);
            return Acknowledged::default();
        }
        self.on_acknowledged_after_loss(to, is_telling, send, now)
    }

    #[cold]
    #[inline(never)]
    fn on_acknowledged_after_loss(
        &mut self,
        to: u64,
        is_telling: bool,
        send: &SendState,
        now: Instant,
    ) -> Acknowledged {
        let next = send.next();
        // The peer has nothing beyond what was just sent again.
        let was_lost = is_telling
            && self.phase == Phase::GoBackN(Trigger::ProbeTimeout)
            && to <= next
            && to < send.max_sent();
        self.note_evidence(to, next);
        let repair = if is_telling { self.partial_ack_repair(to, next) } else { None };
        let resume = match is_telling {
            true => self.undo_retransmission(to, send, now),
            false => self.undo_nak(to, next, now),
        };
        if self.is_selective() {
            self.known().repaired = 0;
            self.note_gaps(0..to, [], now);
        }
        if was_lost {
            self.rtt.discard_sample();
        }
        self.rtt.on_acknowledged(to, now);
        if self.phase != Phase::Open {
            self.advance_phase(to, is_telling, now);
        }
        Acknowledged { was_lost, resume, repair }
    }

    /// Everything before `to` is acknowledged: the phase continues, or ends.
    fn advance_phase(&mut self, to: u64, is_telling: bool, now: Instant) {
        if self.phase == Phase::Repair(RepairStep::Waits) {
            let late = now.saturating_since(self.resent.at).as_nanos();
            self.lateness.on_late(u64::try_from(late).unwrap_or(u64::MAX));
        }
        let is_continued = match self.phase {
            Phase::Repair(RepairStep::Sends | RepairStep::Sent) => to < self.resent.end,
            // Without a round trip a late packet is known by what the peer has beyond it.
            Phase::GoBackN(Trigger::Nak) => {
                to < self.resent.resume.seq && !(is_telling && self.rtt.is_known())
            }
            // Until no gap is left.
            Phase::Selective => true,
            _ => false,
        };
        if !is_continued {
            self.phase = Phase::Open;
        } else if self.phase == Phase::GoBackN(Trigger::Nak) && to >= self.resent.end {
            self.resent.packets = self.resent.packets.saturating_mul(RESENT_GROWTH);
        }
    }

    /// Returns the packets to send again if an ACK up to `to` shows that the next one is missing:
    /// it was sent before the repair, or before the go-back-N, that has arrived.
    fn partial_ack_repair(&mut self, to: u64, next: u64) -> Option<u32> {
        let (sent_again, packets) = match self.phase {
            Phase::GoBackN(Trigger::Nak) if to > next && self.peer_keeps() => (next, 0),
            Phase::Repair(RepairStep::Sends | RepairStep::Sent | RepairStep::NextWaits) => {
                (self.resent.end, self.resent.packets)
            }
            _ => return None,
        };
        if to < sent_again || to >= self.resent.resume.seq {
            return None;
        }
        let has_kept = to > sent_again;
        self.keeping.on_repair_arrived(has_kept);
        Some(if has_kept { 1 } else { (2 * packets).clamp(1, MAX_REPAIR) })
    }

    /// An ACK was not beyond what was sent before a repair: the next `packets` are missing too.
    #[cold]
    #[inline(never)]
    pub(crate) fn on_partial_ack(
        &mut self,
        packets: u32,
        send: &SendState,
        now: Instant,
    ) -> Action {
        if send.reads().find(send.unacked()).is_some() {
            // Its response may be on its way.
            return Action::None;
        }
        if !self.peer_keeps() {
            self.retries.naks = NakHandling::Ignore;
            return Action::GoBack { cause: RetransmitCause::SequenceNak, has_cost: false };
        }
        match self.wait_after_partial_ack(now) {
            Some(until) => Action::Wait(until),
            None => Action::Repair(packets),
        }
    }

    /// Returns the instant until which the packet behind a partial ACK may arrive by itself: it was
    /// sent before the repair, but the ACK may not be one to the repair.
    fn wait_after_partial_ack(&mut self, now: Instant) -> Option<Instant> {
        if !self.rtt.is_known() {
            return None;
        }
        let nanos = self.rtt.smoothed_nanos() + self.lateness.expected_nanos(&self.rtt);
        let until = self.resent.at + Duration::from_nanos(nanos);
        if until <= now {
            return None;
        }
        self.phase = Phase::Repair(RepairStep::NextWaits);
        Some(until)
    }

    /// Returns the position to resume if an ACK up to `to` shows that less is missing than is sent
    /// again: a probe timeout was too early, or the peer keeps packets.
    fn undo_retransmission(
        &mut self,
        to: u64,
        send: &SendState,
        now: Instant,
    ) -> Option<SendPosition> {
        let next = send.next();
        // Then the packet that was missing has arrived by itself.
        let is_early = !self.rtt.may_respond_to(self.resent.at, now);
        let is_undone = match self.phase {
            Phase::GoBackN(Trigger::ProbeTimeout) => to > next,
            Phase::GoBackN(Trigger::Nak) => {
                self.peer_keeps() && (to > next || (is_early && to > send.unacked() + 1))
            }
            Phase::Repair(RepairStep::Sends) => to >= self.resent.end,
            _ => false,
        };
        self.undo_if(is_undone, to)
    }

    /// Returns the position to resume if the peer has executed what is before `to`, and keeps packets:
    /// after a NAK only what is before `next` was sent again, just now.
    fn undo_nak(&mut self, to: u64, next: u64, now: Instant) -> Option<SendPosition> {
        let is_early = !self.rtt.may_respond_to(self.resent.at, now);
        let is_undone = to > next || (is_early && to > self.resent.end);
        let is_after_nak = self.phase == Phase::GoBackN(Trigger::Nak);
        self.undo_if(is_after_nak && is_undone && self.peer_keeps(), to)
    }

    fn undo_if(&mut self, is_undone: bool, to: u64) -> Option<SendPosition> {
        if !is_undone || to > self.resent.resume.seq {
            return None;
        }
        self.phase = Phase::Open;
        Some(self.resent.resume)
    }

    fn note_evidence(&mut self, to: u64, next: u64) {
        if self.phase == Phase::GoBackN(Trigger::Nak) {
            self.keeping.on_executed_after_nak(to, next, self.resent.resume.seq);
        }
    }

    /// A NAK for the oldest packet, `seq`, arrived, or a response behind a missing one.
    pub(crate) fn on_nak(
        &mut self,
        cause: RetransmitCause,
        seq: u64,
        send: &SendState,
        now: Instant,
    ) -> Action {
        let has_cost = match self.retries.naks {
            NakHandling::CountRetry => true,
            NakHandling::NoRetryCost => false,
            //= rule rc-rnr-then-nak: rxe_resp.c: check_psn
            //# A sequence NAK that follows an RNR NAK is for what was sent behind it, and costs no
            //# retry: neither while the requester waits nor after that.
            NakHandling::Ignore | NakHandling::RnrWait => return Action::None,
        };
        let is_kept = cause == RetransmitCause::SequenceNak && self.peer_keeps();
        if is_kept {
            // Right behind a repair it shows that the peer keeps nothing; then it gets everything again.
            self.keeping.on_repair_arrived(seq != self.resent.end);
        }
        if has_cost && !self.retries.spend() {
            return Action::GiveUp(CompletionStatus::RetryExceeded);
        }
        self.retries.naks = NakHandling::Ignore;
        // Where everything is about to be sent again a repair has nothing to resume.
        if !is_kept || !self.peer_keeps() || send.in_flight() == 0 {
            return Action::GoBack { cause, has_cost };
        }
        if self.may_be_selective() && (self.is_selective() || self.peer_reports()) {
            return self.on_gap(seq, now);
        }
        self.resent.at = now;
        if !self.rtt.is_known() {
            return Action::Repair(1);
        }
        let wait = self.lateness.expected_nanos(&self.rtt);
        self.lateness.on_loss();
        self.phase = Phase::Repair(RepairStep::Waits);
        Action::Wait(now + Duration::from_nanos(wait))
    }

    /// The peer, which keeps packets, misses packet `seq`.
    pub(crate) fn on_gap(&mut self, seq: u64, now: Instant) -> Action {
        let gap = seq..seq + 1;
        self.note_gaps(gap.clone(), [gap], now);
        Action::RepairGaps
    }

    /// The peer has no receive for the oldest packet, and asks to wait for so long.
    pub(crate) fn on_rnr_nak(&mut self, wait: Duration, params: &QpParams, now: Instant) -> Action {
        if self.is_in_rnr_wait() {
            return Action::None;
        }
        if !self.retries.begin_rnr_wait(params) {
            return Action::GiveUp(CompletionStatus::RnrRetryExceeded);
        }
        Action::WaitForReceive(now + wait)
    }

    /// A response to `seq` arrived twice: what was taken for lost was late, unless it was sent before a
    /// go-back-N.
    #[cold]
    pub(crate) fn on_duplicate(&mut self, seq: u64) {
        if seq >= self.resent.resume.seq {
            self.lateness.on_spurious_repair(&self.rtt);
        }
    }

    /// The peer has executed everything before `to`, though not all is acknowledged yet. Returns
    /// the position to resume if less is missing than is sent again.
    pub(crate) fn on_executed(
        &mut self,
        to: u64,
        send: &SendState,
        now: Instant,
    ) -> Option<SendPosition> {
        self.rtt.on_acknowledged(to, now);
        self.note_evidence(to, send.next());
        self.undo_nak(to, send.next(), now)
    }
}
