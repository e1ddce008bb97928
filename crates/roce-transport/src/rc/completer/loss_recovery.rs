//! Loss recovery without a NAK.
//!
//! A responder reports a gap once. If that NAK is lost, or the first packet that is sent again, or
//! the last packets of all, only a timer helps. The ACK timeout is milliseconds to seconds, and
//! consumes a retry. So a probe timeout (2·SRTT + 4·RTTVAR, doubled per expiry, never beyond the ACK
//! timeout) runs beside it:
//!
//! 1. First expiry: the last packet is sent again alone (tail loss probe). If only its ACK was late
//!    or lost, the peer acknowledges it again; if a packet is missing, the peer sends a NAK.
//! 2. Next expiry, or the first after a retransmission: go-back-N, without consuming a retry.
//!
//! The ACK timeout keeps running, so that a dead peer is given up when it would have been anyway.
//!
//! After go-back-N only the minimum window leaves until a response arrives: a ring that just
//! overflowed is still full.

use core::time::Duration;

use crate::context::Context;
use crate::qp::context::QpContext;
use crate::qp::send_queue::SendEntry;
use crate::rc::completer::rtt::RttEstimator;
use crate::rc::requester::ack_request::AckPolicy;
use crate::rc::requester::transmit::Step;
use crate::rc::requester::{NakAction, Requester};
use crate::timers::{Timer, Timers};
use crate::train::TrainWriter;
use crate::transfer::GatherCopy;
use crate::{CompletionStatus, Instant, Memory, Observer, RetransmitCause};

/// State of the loss recovery of a queue pair.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LossRecovery {
    rtt: RttEstimator,
    state: State,
    /// Probe timeouts in a row.
    expiries: u32,
    /// Position before the last go-back-N by probe timeout.
    undo_to: SendPosition,
    /// Instant from which the probe timeout counts: that of the first packet that requests an ACK.
    probe_base: Instant,
}

/// Sequence number of the next packet, and number of its entry.
pub(crate) type SendPosition = (u64, u64);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// No loss is known.
    #[default]
    Open,
    /// The probe is to be sent.
    ProbePending,
    /// The probe was sent.
    ProbeSent,
    /// Go-back-N after a NAK or the ACK timeout.
    GoBackN,
    /// Go-back-N after a probe timeout.
    PtoGoBackN,
}

impl LossRecovery {
    /// Deadline of a probe timeout that counts from `probe_base`.
    fn probe_deadline(&self, probe_base: Instant) -> Instant {
        let wait = self.rtt.probe_timeout_nanos().saturating_mul(1 << self.expiries.min(20));
        Instant::from_nanos(probe_base.as_nanos().saturating_add(wait))
    }

    /// A packet that requests a response was sent for the first time.
    pub(crate) fn on_sent(&mut self, seq: u64, now: Instant) {
        self.rtt.on_sent(seq, now);
    }

    /// A packet was sent while none in flight had requested a response: the probe timeout counts
    /// from now on.
    pub(crate) fn rebase_probe_timer(&mut self, now: Instant) {
        // After a retransmission it counts from the first transmission.
        if self.is_open() {
            self.probe_base = now;
        }
    }

    /// Returns true if the round trip of a packet is being measured.
    pub(crate) fn is_timing(&self) -> bool {
        self.rtt.is_timing()
    }

    /// Everything before `to` is acknowledged, some of it for the first time. `was_lost`: see
    /// [`confirms_loss`](Self::confirms_loss).
    pub(crate) fn on_progress(&mut self, to: u64, was_lost: bool, now: Instant) {
        if was_lost {
            self.rtt.discard_sample();
        }
        self.rtt.on_acknowledged(to, now);
        self.state = State::Open;
        self.expiries = 0;
    }

    /// The peer responded that it has no receive: the probe timeouts before were not in a row.
    pub(crate) fn on_rnr_nak(&mut self) {
        self.expiries = 0;
    }

    /// Everything is sent again.
    pub(crate) fn on_retransmit(&mut self, cause: RetransmitCause) {
        self.state = match cause {
            // Nothing was lost.
            RetransmitCause::RnrTimeout => State::Open,
            RetransmitCause::ProbeTimeout => State::PtoGoBackN,
            _ => State::GoBackN,
        };
        // A probe timeout may be too early. If the round trip were not measured then, it would
        // stay too early.
        if cause != RetransmitCause::ProbeTimeout {
            self.rtt.discard_sample();
        }
    }

    /// Returns true if no loss is known.
    pub(crate) fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// Returns true once if the probe is to be sent.
    pub(crate) fn take_probe(&mut self) -> bool {
        let is_due = self.state == State::ProbePending;
        if is_due {
            self.state = State::ProbeSent;
        }
        is_due
    }

    /// Returns true if this response shows that the probe timeout was due to a loss: the peer has
    /// nothing beyond what was just sent again.
    pub(crate) fn confirms_loss(&self, to: u64, next: u64, max_sent: u64) -> bool {
        self.state == State::PtoGoBackN && to <= next && to < max_sent
    }

    /// Returns the position to resume if this response shows that the retransmission was spurious:
    /// the peer has more than was sent again.
    pub(crate) fn undo_if_spurious(&self, to: u64, next: u64) -> Option<SendPosition> {
        let is_undone = self.state == State::PtoGoBackN && to > next && to <= self.undo_to.0;
        is_undone.then_some(self.undo_to)
    }

    /// Returns true if the probe is to be sent.
    pub(crate) fn is_probe_pending(&self) -> bool {
        self.state == State::ProbePending
    }

    pub(crate) fn is_retransmitting(&self) -> bool {
        matches!(self.state, State::GoBackN | State::PtoGoBackN)
    }
}

impl Requester {
    /// Packets that may be in flight now.
    pub(crate) fn effective_window(&self) -> u32 {
        if self.recovery.is_retransmitting() { self.window.min() } else { self.window.size() }
    }

    /// The probe timeout expired.
    ///
    /// # Errors
    /// As [`go_back_n`](Self::go_back_n).
    pub(crate) fn on_probe_timeout<O: Observer>(
        &mut self,
        qp: &QpContext,
        timers: &mut Timers,
        cx: &mut Context<'_, O>,
    ) -> Result<(), CompletionStatus> {
        if self.next == self.unacked || self.in_rnr_wait {
            return Ok(());
        }
        if self.recovery.probe_deadline(self.recovery.probe_base) > cx.time {
            // Before that no packet requested a response.
            self.arm_probe_timer(self.recovery.probe_base, timers);
            return Ok(());
        }
        self.recovery.expiries += 1;
        if self.recovery.state == State::Open && self.last_in_flight().is_some() {
            self.recovery.state = State::ProbePending;
            return Ok(());
        }
        cx.counters().probe_timeout += 1;
        if self.recovery.state != State::PtoGoBackN {
            self.recovery.undo_to = (self.next, self.current_wqe);
        }
        self.go_back_n(RetransmitCause::ProbeTimeout, false, qp, timers, cx)?;
        self.nak_action = NakAction::NoRetryCost;
        Ok(())
    }

    /// Arms the probe timer, counting from `probe_base`, unless the ACK timeout expires before.
    pub(crate) fn arm_probe_timer(&self, probe_base: Instant, timers: &mut Timers) {
        let at = self.recovery.probe_deadline(probe_base);
        if timers.at(Timer::AckTimeout).is_some_and(|later| at < later) {
            timers.arm(Timer::Probe, at);
        }
    }

    /// Extends the ACK timeout if no packet had requested a response when it started: sends a probe,
    /// or grants the rest of the time. Returns true if it is extended.
    pub(crate) fn extend_ack_timeout(
        &mut self,
        wait: Duration,
        timers: &mut Timers,
        now: Instant,
    ) -> bool {
        if !self.has_requested_ack() && self.recovery.is_open() && self.last_in_flight().is_some() {
            self.recovery.state = State::ProbePending;
            timers.stop(Timer::Probe);
            // Counts from when the probe is sent, if it can be.
            timers.arm(Timer::AckTimeout, now + wait);
            self.is_unsent = true;
            return true;
        }
        let over = self.recovery.probe_base + wait;
        if over > now {
            timers.arm(Timer::AckTimeout, over);
            self.arm_probe_timer(self.recovery.probe_base, timers);
        }
        over > now
    }

    /// The last packet sent and the number of its entry, if it can be a probe. It cannot while
    /// responses with data are outstanding: a probe would request them again.
    fn last_in_flight(&self) -> Option<(u64, u64)> {
        let last = self.next.checked_sub(1).filter(|last| *last >= self.unacked)?;
        if self.reads.outstanding(self.next) > 0 {
            return None;
        }
        let holds = |entry: SendEntry<'_>| entry.first <= last && last < entry.end();
        let mut numbers = (self.queue.head()..=self.current_wqe).rev();
        let number = numbers.find(|it| self.queue.get(*it).is_some_and(holds))?;
        Some((last, number))
    }

    /// Writes the last packet again, alone; returns false where that is not possible.
    pub(crate) fn write_probe<M: Memory, O: Observer>(
        &mut self,
        qp: &QpContext,
        memory: &mut M,
        train: &mut TrainWriter<'_>,
        cx: &mut Context<'_, O>,
    ) -> bool {
        let Some((last, number)) = self.last_in_flight() else { return false };
        let Some(entry) = self.queue.get(number) else { return false };
        let (gather, acks) = (&mut GatherCopy::new(), &mut AckPolicy::ALWAYS.clone());
        let written = self.write_data(entry, last, qp, memory, gather, acks, train);
        // Where it cannot be written, go-back-N finds out why.
        let Ok(Step::Sent(_)) = written else { return false };
        // The round trip is still measured from the first transmission: after a loss the next
        // timeout is too long rather than too short.
        self.since_ack_req = 0;
        cx.counters().tail_probe += 1;
        cx.counters().resent_pkts += 1;
        cx.out.observer.retransmit(cx.now, cx.qpn, self.psn(last), RetransmitCause::TailProbe);
        true
    }
}
