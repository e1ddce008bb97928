//! Recovery from losses that nobody tells of.
//!
//! A responder complains of a gap once. Where the complaint is lost, or the first packet
//! that is sent again, or the last packets of all, it says nothing more, and only a timer
//! helps. The ACK timer is made for peers that are gone: it takes milliseconds to seconds,
//! and each time it fires costs a retry. So there is a shorter one beside it, of a few
//! measured round trips, doubled each time it fires in a row and never beyond the ACK
//! timer:
//!
//! 1. It fires while all seems well: the last packet is sent again, alone. If only its
//!    answer was late or lost, the peer acknowledges it again; if something is missing, the
//!    peer says what.
//! 2. It fires after that, or after we went back already: everything unacknowledged is sent
//!    again, which costs no retry.
//!
//! The ACK timer runs on beside it as if nothing had been done, so that a silent peer is
//! given up exactly when it would have been.
//!
//! After going back, no more than a few packets leave until something arrives: a queue that
//! just overflowed is still full.

use core::time::Duration;

use crate::context::Context;
use crate::rc::completer::rtt::RttEstimator;
use crate::rc::qp_context::QpContext;
use crate::rc::requester::ack_request::AckPolicy;
use crate::rc::requester::send_queue::SendEntry;
use crate::rc::requester::transmit::Step;
use crate::rc::requester::{NakAction, Requester};
use crate::timers::{Timer, Timers};
use crate::train::TrainWriter;
use crate::transfer::GatherCopy;
use crate::{CompletionStatus, Instant, Memory, Observer, RetransmitCause};

/// What has been done about a loss, and when to do more.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LossRecovery {
    rtt: RttEstimator,
    state: State,
    /// How often nothing was heard in a row.
    expiries: u32,
    /// Where we had been when we went back because of that.
    undo_to: SendPosition,
    /// From when on silence counts: nobody who was not asked is late.
    probe_base: Instant,
}

/// A place in the sequence: the next packet, and the number of its entry.
pub(crate) type SendPosition = (u64, u64);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Answers come, as far as is known.
    #[default]
    Open,
    /// The last packet is to be sent again.
    ProbePending,
    /// It was sent again.
    ProbeSent,
    /// We went back, told by a NAK or by the ACK timer.
    GoBackN,
    /// We went back because it was quiet.
    PtoGoBackN,
}

impl LossRecovery {
    /// When it has been quiet for too long that has been quiet since `since`.
    fn probe_deadline(&self, probe_base: Instant) -> Instant {
        let wait = self.rtt.probe_timeout_nanos().saturating_mul(1 << self.expiries.min(20));
        Instant::from_nanos(probe_base.as_nanos().saturating_add(wait))
    }

    /// A packet that asks for an answer was sent, for the first time.
    pub(crate) fn on_sent(&mut self, seq: u64, now: Instant) {
        self.rtt.on_sent(seq, now);
    }

    /// Something new was sent, behind nothing that asks for an answer: silence counts from now on.
    pub(crate) fn rebase_probe_timer(&mut self, now: Instant) {
        // Of what is sent again it counts from the first time.
        if self.is_open() {
            self.probe_base = now;
        }
    }

    /// Is there a packet whose answer is being timed?
    pub(crate) fn is_timing(&self) -> bool {
        self.rtt.is_timing()
    }

    /// Everything before `to` is answered, and some of it was not before. `was_lost`: see
    /// [`was_quiet_for_a_loss`](Self::was_quiet_for_a_loss).
    pub(crate) fn on_progress(&mut self, to: u64, was_lost: bool, now: Instant) {
        if was_lost {
            self.rtt.discard_sample();
        }
        self.rtt.on_acknowledged(to, now);
        self.state = State::Open;
        self.expiries = 0;
    }

    /// Everything is sent again.
    pub(crate) fn on_retransmit(&mut self, cause: RetransmitCause) {
        self.state = match cause {
            // Nothing was lost on the way; the receiver was not there.
            RetransmitCause::RnrTimeout => State::Open,
            RetransmitCause::ProbeTimeout => State::PtoGoBackN,
            _ => State::GoBackN,
        };
        // Of the short timer nobody knows yet whether it fired too early. Were the round
        // trip not measured whenever it does, it would do so for ever.
        if cause != RetransmitCause::ProbeTimeout {
            self.rtt.discard_sample();
        }
    }

    /// Do answers come, as far as is known?
    pub(crate) fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// Is the last packet to be sent again? Says so once.
    pub(crate) fn take_probe(&mut self) -> bool {
        let is_due = self.state == State::ProbePending;
        if is_due {
            self.state = State::ProbeSent;
        }
        is_due
    }

    /// Does this answer show that it was quiet because of a loss? A peer that has nothing
    /// beyond what was just sent again did not get it the first time.
    pub(crate) fn confirms_loss(&self, to: u64, next: u64, max_sent: u64) -> bool {
        self.state == State::PtoGoBackN && to <= next && to < max_sent
    }

    /// Where to go on if this answer shows that the peer was only busy: it has more than
    /// was sent again, so the rest is as likely on its way as it was before.
    pub(crate) fn undo_if_spurious(&self, to: u64, next: u64) -> Option<SendPosition> {
        let is_undone = self.state == State::PtoGoBackN && to > next && to <= self.undo_to.0;
        is_undone.then_some(self.undo_to)
    }

    /// Is the last packet to be sent again?
    pub(crate) fn is_probe_pending(&self) -> bool {
        self.state == State::ProbePending
    }

    pub(crate) fn is_retransmitting(&self) -> bool {
        matches!(self.state, State::GoBackN | State::PtoGoBackN)
    }
}

impl Requester {
    /// Packets that may be on their way now.
    pub(crate) fn effective_window(&self) -> u32 {
        if self.recovery.is_retransmitting() { self.window.min() } else { self.window.size() }
    }

    /// Nothing was heard for a few round trips.
    ///
    /// # Errors
    /// As [`go_back`](Self::go_back).
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
            // Before that nobody was asked, and of a gap before what was sent last the peer would
            // have told: only the last packet can be missing unnoticed.
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

    /// The short timer fires when it has been quiet since `since` for longer than answers take,
    /// unless the ACK timer does before.
    pub(crate) fn arm_probe_timer(&self, probe_base: Instant, timers: &mut Timers) {
        let at = self.recovery.probe_deadline(probe_base);
        if timers.at(Timer::AckTimeout).is_some_and(|later| at < later) {
            timers.arm(Timer::Probe, at);
        }
    }

    /// Is the ACK timer's time not over, since nobody was asked when it began? Then the peer is
    /// asked now, or has the rest of its time: a silence that nobody broke is not the peer's.
    pub(crate) fn extend_ack_timeout(
        &mut self,
        wait: Duration,
        timers: &mut Timers,
        now: Instant,
    ) -> bool {
        if !self.has_requested_ack() && self.recovery.is_open() && self.last_in_flight().is_some() {
            self.recovery.state = State::ProbePending;
            timers.stop(Timer::Probe);
            // From when the question is sent, if it can be.
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

    /// The last packet sent and the number of its entry, if the peer can be asked by it how
    /// far it is. It cannot where answers with data are outstanding: those come first, and
    /// asking for them again brings them again.
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

    /// Sends the last packet again, alone; false where that is not possible.
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
        // Where it cannot be written, going back finds out why.
        let Ok(Step::Sent(_)) = written else { return false };
        // The round trip is measured on, from the first time: a peer that has become slow
        // is believed, and after a loss the next wait is too long rather than too short.
        self.since_ack_req = 0;
        cx.counters().tail_probe += 1;
        cx.counters().resent_pkts += 1;
        cx.out.observer.retransmit(cx.now, cx.qpn, self.psn(last), RetransmitCause::TailProbe);
        true
    }
}
