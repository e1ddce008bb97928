//! The probe timeout, and the packets that are sent again when it expires first.

use core::time::Duration;

use super::{Probe, State};
use crate::context::Context;
use crate::qp::context::QpContext;
use crate::qp::send_queue::SendEntry;
use crate::rc::requester::ack_request::AckPolicy;
use crate::rc::requester::transmit::Step;
use crate::rc::requester::{NakAction, Requester};
use crate::timers::{Timer, Timers};
use crate::train::TrainWriter;
use crate::transfer::GatherCopy;
use crate::{CompletionStatus, Instant, Memory, Observer, RetransmitCause};

impl Requester {
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
        if matches!(self.recovery.state, State::RepairWait | State::PartialWait) {
            self.repair(1, qp, timers, cx);
            return Ok(());
        }
        if self.expire_gaps(cx.time) {
            return Ok(());
        }
        if self.recovery.probe_deadline(self.recovery.probe_base) > cx.time {
            // Before that no packet requested a response.
            self.arm_probe_timer(self.recovery.probe_base, timers);
            return Ok(());
        }
        self.recovery.expiries = self.recovery.expiries.saturating_add(1);
        if self.recovery.state == State::Open && self.last_in_flight().is_some() {
            self.recovery.state = State::ProbePending;
            return Ok(());
        }
        if self.recovery.state == State::Selective && self.recovery.expiries == 1 {
            self.known().gaps.expire_all();
            return Ok(());
        }
        cx.counters().probe_timeout += 1;
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
        if !self.recovery.is_open() {
            self.arm_gap_timer(timers);
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

    /// Writes the probe that is due; returns false where there is none, or it cannot be written.
    pub(crate) fn write_probe<M: Memory, O: Observer>(
        &mut self,
        qp: &QpContext,
        memory: &mut M,
        train: &mut TrainWriter<'_>,
        cx: &mut Context<'_, O>,
    ) -> bool {
        let (last, oldest) = (self.last_in_flight(), (self.unacked, self.queue.head()));
        let has_both = last.is_some_and(|(seq, _)| seq > self.unacked);
        let Some(probe) = self.recovery.take_probe(has_both) else { return false };
        let Some((seq, number)) = (if probe == Probe::Last { last } else { Some(oldest) }) else {
            return false;
        };
        let Some(entry) = self.queue.get(number) else { return false };
        let (gather, acks) = (&mut GatherCopy::new(), &mut AckPolicy::ALWAYS.clone());
        let written = self.write_data(entry, seq, qp, memory, gather, acks, train);
        // Where it cannot be written, go-back-N finds out why.
        let Ok(Step::Sent(_)) = written else { return false };
        // The round trip is still measured from the first transmission: after a loss the next
        // timeout is too long rather than too short.
        self.since_ack_req = 0;
        self.recovery.on_probe(seq);
        cx.counters().tail_probe += u64::from(probe == Probe::Last);
        cx.counters().resent_pkts += 1;
        cx.out.observer.retransmit(cx.now, cx.qpn, self.psn(seq), RetransmitCause::TailProbe);
        true
    }
}
