//! The requester: the requests of a queue pair, and how far they are sent and acknowledged.

pub(crate) mod ack_request;
pub(crate) mod frames_in_flight;
mod loss_allowance;
pub(crate) mod outstanding_reads;
mod packets;
pub(crate) mod reaction;
mod send_window;
mod single_packet;
pub(crate) mod transmit;

use roce_wire::Psn;

use crate::congestion::CongestionAlgorithm;
use crate::context::Context;
use crate::qp::context::QpContext;
use crate::qp::send_queue::SendQueue;
use crate::rc::completer::loss_recovery::LossRecovery;
use crate::rc::completer::selective_repeat::KnownGaps;
use crate::rc::requester::frames_in_flight::FramesInFlight;
use crate::rc::requester::loss_allowance::LossAllowance;
use crate::rc::requester::outstanding_reads::OutstandingReads;
use crate::rc::requester::reaction::Reaction;
use crate::rc::requester::send_window::SendWindow;
use crate::rc::requester::transmit::Sent;
use crate::timers::{Timer, Timers};
use crate::{
    AsyncEvent, CompletionStatus, Counters, EndpointConfig, Instant, Observer, RetransmitCause,
    SendOperation,
};

/// The sending half of a queue pair, on which requester and completer work.
///
/// ```text
///   unacked     next         max_sent        end of the queue
///     |  in flight |  to resend  |  to send first  |
/// ----+------------+-------------+-----------------+---->  sequence numbers
/// ```
/// Invariant: `unacked <= next <= max_sent`, and `max_sent - unacked` is below half the PSN
/// circle; otherwise "duplicate" and "never sent" could not be told apart.
#[derive(Debug)]
pub(crate) struct Requester {
    pub(crate) queue: SendQueue,
    /// The PSN of sequence number 0.
    pub(crate) first_psn: Psn,
    /// Oldest sequence number that is not acknowledged; part of the entry in front.
    pub(crate) unacked: u64,
    pub(crate) next: u64,
    pub(crate) max_sent: u64,
    /// Number of the entry that `next` is part of.
    pub(crate) current_wqe: u64,
    pub(crate) reads: OutstandingReads,
    pub(crate) window: SendWindow,
    /// First sequence number behind those of which one loss counts with the latest.
    pub(crate) loss_end: u64,
    /// Losses that do not count.
    loss_allowance: LossAllowance,
    pub(crate) reaction: Option<Box<Reaction>>,
    pub(crate) recovery: LossRecovery,
    /// What is known of gaps, while there are some.
    pub(crate) known: Option<Box<KnownGaps>>,
    pub(crate) credit: Credit,
    pub(crate) frames: FramesInFlight,
    /// Packets sent since the last one that carried AckReq.
    pub(crate) since_ack_req: u32,
    /// The ACK timer was armed while nothing was in flight, and nothing has been sent since.
    pub(crate) is_unsent: bool,
    pub(crate) retries_left: u8,
    pub(crate) rnr_retries_left: u8,
    pub(crate) in_rnr_wait: bool,
    pub(crate) nak_action: NakAction,
    /// Entries from this number on are not started: the queue is being drained.
    pub(crate) drain_before: Option<u64>,
    pub(crate) is_drained: bool,
}

/// What to do about a NAK for the oldest packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NakAction {
    /// Go back N, and count a retry.
    CountRetry,
    /// Go back N without counting a retry: the NAK may be for packets sent before a timer fired
    /// (rxe follows an RNR NAK with a sequence NAK).
    NoRetryCost,
    /// Ignore it: it is for packets sent before an earlier NAK was handled.
    Ignore,
}

/// Messages for which the peer has posted receives.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Credit {
    /// Messages started, modulo 2^24. A READ in several requests counts as several, as the peer
    /// counts it.
    begun: u32,
    /// Messages up to this one have a receive posted; `None` while the peer does not advertise
    /// credits.
    limit: Option<Psn>,
}

impl Credit {
    pub(crate) fn on_begun(&mut self) {
        self.begun = self.begun.wrapping_add(1);
    }

    /// A response said that `msn` messages are complete and `count` more receives are posted.
    pub(crate) fn update(&mut self, msn: u32, count: Option<u32>) {
        self.limit = count.map(|count| {
            let said = Psn::wrapping(msn.wrapping_add(count));
            // Responses may be reordered, and receives are never taken back.
            self.limit.filter(|known| known.distance_from(said) > 0).unwrap_or(said)
        });
    }

    /// Returns the receives left behind the current message, or, if a message `begins` now, behind
    /// that one; `None` while the peer does not advertise credits.
    pub(crate) fn left(&self, begins: bool) -> Option<u32> {
        let begun = Psn::wrapping(self.begun.wrapping_add(u32::from(begins)));
        Some(u32::try_from(self.limit?.distance_from(begun)).unwrap_or(0))
    }

    /// Returns true if there is a receive for the next message.
    pub(crate) fn has_room(&self) -> bool {
        let this = Psn::wrapping(self.begun.wrapping_add(1));
        self.limit.is_none_or(|limit| limit.distance_from(this) >= 0)
    }
}

impl Requester {
    pub(crate) fn new(config: &EndpointConfig, qp: &QpContext, first_psn: Psn) -> Self {
        let window = SendWindow::new(&config.window, qp.params.mtu);
        Self {
            queue: SendQueue::default(),
            first_psn,
            unacked: 0,
            next: 0,
            max_sent: 0,
            current_wqe: 0,
            reads: OutstandingReads::default(),
            reaction: Reaction::at_start(&config.congestion, &window, qp.params.mtu),
            window,
            loss_end: 0,
            loss_allowance: LossAllowance::default(),
            recovery: LossRecovery::new(qp.params.gap_reports, qp.params.ack_timeout),
            known: None,
            credit: Credit::default(),
            frames: FramesInFlight::default(),
            since_ack_req: 0,
            is_unsent: false,
            retries_left: qp.params.retry_count,
            rnr_retries_left: qp.params.rnr_retry.unwrap_or(0),
            in_rnr_wait: false,
            nak_action: NakAction::CountRetry,
            drain_before: None,
            is_drained: false,
        }
    }

    /// The PSN of a sequence number.
    pub(crate) const fn psn(&self, seq: u64) -> Psn {
        self.first_psn.advanced_by((seq % Psn::MODULUS as u64) as u32)
    }

    /// Returns the sequence number of `psn` if its packet is sent and not acknowledged.
    pub(crate) fn outstanding(&self, psn: Psn) -> Option<u64> {
        let ahead = u64::try_from(psn.distance_from(self.psn(self.unacked))).ok()?;
        Some(self.unacked + ahead).filter(|seq| *seq < self.max_sent)
    }

    /// Advances the send sequence over packets that were written.
    #[inline]
    pub(super) fn commit(&mut self, sent: &Sent, counters: &mut Counters) {
        counters.resent_pkts += sent.packets.min(self.max_sent - self.next);
        self.next += sent.seqs;
        self.max_sent = self.max_sent.max(self.next);
        self.current_wqe += u64::from(sent.ends);
        if sent.begins {
            self.credit.on_begun();
        }
        if let Some(request) = sent.read {
            self.reads.push(request);
        }
        if sent.response_len > 0 {
            self.frames.expect_response_frames(sent.response_len);
        }
    }

    /// Everything before `to` is acknowledged, and every response before it has arrived.
    pub(crate) fn advance<O: Observer>(
        &mut self,
        to: u64,
        qp: &QpContext,
        timers: &mut Timers,
        cx: &mut Context<'_, O>,
    ) {
        if to <= self.unacked {
            return;
        }
        let size = self.window.size();
        // A response with data does not show what of the packets behind it has arrived.
        let is_telling = self.reads.first_missing(self.unacked) != Some(self.unacked);
        let was_lost = is_telling && self.recovery.confirms_loss(to, self.next, self.max_sent);
        let (mut resumed, mut repair) = (None, None);
        if !self.recovery.is_open() {
            let (unacked, next) = (self.unacked, self.next);
            self.recovery.note_evidence(to, next);
            if is_telling {
                repair = self.recovery.next_repair(to, next);
                resumed = self.recovery.undo_retransmission(unacked, to, next, cx.time);
            } else {
                resumed = self.recovery.undo_nak(to, next, cx.time);
            }
            self.settle_gaps(to, timers, cx);
        }
        if was_lost {
            self.window.on_loss();
            cx.feedback.is_lost = true;
        } else {
            self.window.on_progress((to - self.unacked) as u32); // below half the circle
        }
        self.note_resized(size, cx);
        if self.reaction.is_some() {
            self.react(to, was_lost, cx);
        }
        self.recovery.on_progress(to, is_telling, was_lost, cx.time);
        self.unacked = to;
        self.frames.on_acknowledged(to, &mut cx.feedback);
        self.reads.settle(to);
        self.retries_left = qp.params.retry_count;
        self.rnr_retries_left = qp.params.rnr_retry.unwrap_or(0);
        self.nak_action = NakAction::CountRetry;
        cx.out.observer.acknowledged(cx.now, cx.qpn, self.psn(to).previous());
        self.retire(qp, cx);
        if self.next <= to {
            // A response to what was sent before the retransmission.
            self.next = to;
            self.current_wqe = self.queue.head();
        }
        if let Some(before) = resumed {
            (self.next, self.current_wqe) = before;
        }
        if self.in_rnr_wait {
            // The RNR NAK was an old one.
            self.in_rnr_wait = false;
            timers.stop(Timer::RnrTimeout);
        }
        self.restart_timers(qp, timers, cx.time);
        if let Some(len) = repair {
            self.on_partial_ack(len, qp, timers, cx);
        }
    }

    /// An ACK was not beyond what was sent before a repair: sends the next `len` packets again.
    #[cold]
    #[inline(never)]
    fn on_partial_ack<O: Observer>(
        &mut self,
        len: u32,
        qp: &QpContext,
        timers: &mut Timers,
        cx: &mut Context<'_, O>,
    ) {
        if self.reads.find(self.unacked).is_some() {
            // Its response may be on its way.
            return;
        }
        if !self.recovery.peer_keeps() {
            // Costs no retry, so none can be missing.
            let cause = RetransmitCause::SequenceNak;
            let _done = self.go_back_n(cause, false, qp, timers, cx).is_ok();
            self.nak_action = NakAction::Ignore;
            return;
        }
        match self.recovery.wait_after_partial_ack(cx.time) {
            Some(until) => timers.arm(Timer::Probe, until),
            None => self.repair(len, qp, timers, cx),
        }
    }

    /// Packets were lost that are repaired alone: if they are many, shrinks the windows, that of the queue
    /// pair once for all losses among what is in flight.
    pub(crate) fn react_to_loss<O: Observer>(&mut self, packets: u64, cx: &mut Context<'_, O>) {
        // Without another sign of congestion each loss is one.
        let may_ignore = cx.config.congestion.algorithm != CongestionAlgorithm::Loss
            && !self.recovery.is_rtt_inflated();
        if self.loss_allowance.ignores(packets, self.unacked) && may_ignore {
            self.window.end_doubling();
            return;
        }
        cx.feedback.is_lost = true;
        if self.unacked >= self.loss_end {
            let size = self.window.size();
            self.window.on_loss();
            self.note_resized(size, cx);
            if self.reaction.is_some() {
                self.react(self.unacked, true, cx);
            }
            self.loss_end = self.max_sent;
        }
    }

    /// As [`keep_timed`](Self::keep_timed), and restarts the timers that run.
    fn restart_timers(&mut self, qp: &QpContext, timers: &mut Timers, time: Instant) {
        timers.stop(Timer::Probe);
        match qp.params.ack_timeout.filter(|_| self.has_to_end()) {
            Some(wait) => {
                timers.arm(Timer::AckTimeout, time + wait);
                self.is_unsent = self.next == self.unacked;
                if !self.is_unsent {
                    self.arm_probe_timer(time, timers);
                }
            }
            None => timers.stop(Timer::AckTimeout),
        }
    }

    /// Returns true if a request is queued that must end without another call by the application.
    /// In a queue that is being drained that is what was begun.
    pub(crate) fn has_to_end(&self) -> bool {
        !self.queue.is_empty() && self.drain_before.is_none_or(|it| self.queue.head() < it)
    }

    /// Arms the timers that are missing. The ACK timer runs as long as a request has to end, also
    /// while nothing can be sent, unless the RNR timer runs.
    pub(crate) fn keep_timed(&mut self, qp: &QpContext, timers: &mut Timers, time: Instant) {
        if !self.has_to_end() {
            timers.stop(Timer::AckTimeout);
            return;
        }
        let Some(wait) = qp.params.ack_timeout else { return };
        if self.in_rnr_wait {
            return;
        }
        let is_in_flight = self.next > self.unacked;
        if !timers.is_armed(Timer::AckTimeout) || (self.is_unsent && is_in_flight) {
            timers.arm(Timer::AckTimeout, time + wait);
            self.is_unsent = !is_in_flight;
        }
        if is_in_flight && !timers.is_armed(Timer::Probe) {
            self.arm_probe_timer(time, timers);
        }
    }

    /// Sends everything unacknowledged again, oldest first.
    ///
    /// # Errors
    /// No retry is left: the request in front ends with this status.
    pub(crate) fn go_back_n<O: Observer>(
        &mut self,
        cause: RetransmitCause,
        costs_a_retry: bool,
        qp: &QpContext,
        timers: &mut Timers,
        cx: &mut Context<'_, O>,
    ) -> Result<(), CompletionStatus> {
        if costs_a_retry {
            self.spend_retry(cx)?;
        }
        cx.counters().completer_retry_err += 1;
        let size = self.window.size();
        match cause {
            RetransmitCause::AckTimeout => self.window.on_timeout(),
            RetransmitCause::SequenceNak | RetransmitCause::ImpliedNak => self.window.on_loss(),
            RetransmitCause::RnrTimeout
            | RetransmitCause::TailProbe
            | RetransmitCause::ProbeTimeout => {}
        }
        self.frames.on_retransmit(cause, self.unacked, &mut cx.feedback);
        self.note_resized(size, cx);
        if self.reaction.is_some() && self.window.size() < size {
            self.react(self.unacked, true, cx);
        }
        self.forget_gaps();
        let position = (self.next, self.current_wqe);
        let request = self.reads.find(self.unacked);
        let missing = self.unacked..request.map_or(self.unacked + 1, |request| request.end);
        self.recovery.on_retransmit(cause, missing, request.is_some(), position, cx.time);
        self.next = self.unacked;
        self.current_wqe = self.queue.head();
        self.since_ack_req = 0;
        timers.stop(Timer::Probe);
        if costs_a_retry {
            // What costs no retry must not extend the ACK timeout.
            timers.stop(Timer::AckTimeout);
        }
        self.keep_timed(qp, timers, cx.time);
        cx.out.observer.retransmit(cx.now, cx.qpn, self.psn(self.unacked), cause);
        Ok(())
    }

    /// # Errors
    /// No retry is left.
    pub(crate) fn spend_retry<O: Observer>(
        &mut self,
        cx: &mut Context<'_, O>,
    ) -> Result<(), CompletionStatus> {
        let Some(left) = self.retries_left.checked_sub(1) else {
            cx.counters().retry_exceeded_err += 1;
            return Err(CompletionStatus::RetryExceeded);
        };
        self.retries_left = left;
        Ok(())
    }

    pub(crate) fn note_resized<O: Observer>(&self, before: u32, cx: &mut Context<'_, O>) {
        if self.window.size() != before {
            cx.out.observer.window_resized(cx.now, cx.qpn, self.window.size());
        }
    }

    /// Starts no further request.
    pub(crate) fn drain(&mut self) {
        let begun = self.queue.get(self.current_wqe).is_some_and(|it| self.next > it.first);
        // What was started before a retransmission is finished too.
        let mut number = self.current_wqe + u64::from(begun);
        while self.queue.get(number).is_some_and(|it| it.first < self.max_sent) {
            number += 1;
        }
        self.drain_before = Some(number);
        self.is_drained = false;
    }

    /// Starts requests again.
    pub(crate) fn resume(&mut self) {
        self.drain_before = None;
        self.is_drained = false;
    }

    /// Returns true if the queue is being drained and a started request is not complete.
    pub(crate) fn is_draining(&self) -> bool {
        self.drain_before.is_some() && !self.is_drained
    }

    /// Raises the event once the queue is drained.
    pub(crate) fn note_drained<O: Observer>(&mut self, qp: &QpContext, cx: &mut Context<'_, O>) {
        if self.is_draining() && self.drain_before.is_some_and(|it| self.queue.head() >= it) {
            self.is_drained = true;
            if qp.params.sqd_notify {
                cx.raise(AsyncEvent::SendQueueDrained { qpn: cx.qpn });
            }
        }
    }

    /// Completes the entries in front that are wholly acknowledged. Local operations complete where
    /// they are executed.
    fn retire<O: Observer>(&mut self, qp: &QpContext, cx: &mut Context<'_, O>) {
        while self.queue.front().is_some_and(|it| {
            it.end() <= self.unacked
                && !matches!(it.work.operation, SendOperation::LocalInvalidate { .. })
        }) {
            self.queue.complete_front(CompletionStatus::Success, qp, cx);
        }
        self.note_drained(qp, cx);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_advertises_no_credits_blocks_nothing() {
        let mut credit = Credit::default();
        assert!(credit.has_room());
        credit.update(0, Some(0));
        assert!(!credit.has_room());
        credit.update(0, None);
        assert!(credit.has_room());
    }

    #[test]
    fn credits_count_from_the_messages_completed_across_the_wrap() {
        let mut credit = Credit { begun: (1 << 24) - 2, limit: None };
        credit.update((1 << 24) - 2, Some(3));
        for _ in 0..3 {
            assert!(credit.has_room());
            credit.on_begun();
        }
        assert!(!credit.has_room());
        credit.update((1 << 24) - 2, Some(1));
        assert!(!credit.has_room(), "an old response takes nothing back");
        credit.update(1, Some(1));
        assert!(credit.has_room());
    }
}
