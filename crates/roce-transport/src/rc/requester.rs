//! The requester: sends the requests of a queue pair, and sends again what was lost.

mod ack_request;
mod loss_allowance;
mod packets;
mod reaction;
mod repeat;
mod send_limit;
mod send_window;
mod single_packet;
mod timeouts;
mod transmit;

use core::ops::Range;

use roce_wire::Psn;

use self::send_limit::SendLimit;
use crate::context::Context;
use crate::frames_in_flight::FramesInFlight;
use crate::qp::context::QpContext;
use crate::rc::loss_recovery::{Action, LossRecovery};
use crate::rc::send_state::{SendPosition, SendState, Sent};
use crate::timers::{Timer, Timers};
use crate::{CompletionStatus, EndpointConfig, Instant, Observer, RetransmitCause};

/// The sending half of a queue pair.
///
/// It performs what [`LossRecovery`] decides on [`SendState`], within its window. The completer tells it
/// what the peer has acknowledged and what it misses.
#[derive(Debug)]
pub(crate) struct Requester {
    send: SendState,
    recovery: LossRecovery,
    limit: SendLimit,
    frames: FramesInFlight,
}

impl Requester {
    pub(crate) fn new(config: &EndpointConfig, qp: &QpContext, first_psn: Psn) -> Self {
        Self {
            send: SendState::new(first_psn),
            recovery: LossRecovery::new(&qp.params),
            limit: SendLimit::new(config, qp.params.mtu),
            frames: FramesInFlight::default(),
        }
    }

    /// Its requests, and how far they are sent and acknowledged.
    #[inline]
    pub(in crate::rc) const fn send(&self) -> &SendState {
        &self.send
    }

    /// As [`send`](Self::send), to post, drain and flush.
    #[inline]
    pub(in crate::rc) const fn send_mut(&mut self) -> &mut SendState {
        &mut self.send
    }

    #[inline]
    pub(in crate::rc) const fn recovery(&self) -> &LossRecovery {
        &self.recovery
    }

    /// Its loss recovery, for what responses tell of packets.
    #[inline]
    pub(in crate::rc) const fn recovery_mut(&mut self) -> &mut LossRecovery {
        &mut self.recovery
    }

    /// Returns the rate in bits per second that limits the sender, if one does.
    pub(crate) fn rate_limit(&self) -> Option<u64> {
        self.limit.rate()
    }

    /// A congestion notification packet arrived, or would be sent for a response of the peer.
    pub(crate) fn on_cnp<O: Observer>(&mut self, qp: &QpContext, cx: &mut Context<'_, O>) {
        self.limit.on_cnp(qp, cx);
    }

    /// The next acknowledgement is to marked packets.
    pub(crate) fn on_becn<O: Observer>(&mut self, qp: &QpContext, cx: &mut Context<'_, O>) {
        self.limit.on_becn(qp, cx);
    }

    /// Forgets frames in flight: another peer window numbers those that follow.
    pub(crate) fn reset_frames(&mut self) {
        self.frames = FramesInFlight::default();
    }

    /// Returns true if something may be left to send.
    #[inline]
    pub(crate) fn has_unsent(&self) -> bool {
        self.send.current().is_some() || self.recovery.has_to_repeat(self.send.reads())
    }

    /// Returns true if gaps are to be repaired now.
    pub(crate) fn has_repairs(&self) -> bool {
        self.recovery.has_gaps_due(self.send.reads())
    }

    /// Packets that may be in flight now.
    #[inline]
    fn window(&self) -> u32 {
        self.recovery.window(self.limit.size(), self.limit.min(), &self.send)
    }

    /// Advances the send sequence over packets that were written.
    #[inline]
    fn commit<O: Observer>(&mut self, sent: &Sent, cx: &mut Context<'_, O>) {
        self.send.commit(sent, cx.counters());
        if sent.response_len > 0 {
            self.frames.expect_response_frames(sent.response_len);
        }
    }

    /// Everything before `to` is acknowledged, and every response before it has arrived.
    pub(in crate::rc) fn advance<O: Observer>(
        &mut self,
        to: u64,
        qp: &QpContext,
        timers: &mut Timers,
        cx: &mut Context<'_, O>,
    ) {
        let unacked = self.send.unacked();
        if to <= unacked {
            return;
        }
        let Self { send, recovery, limit, frames, .. } = self;
        // A response with data does not show what of the packets behind it has arrived.
        let is_telling = send.first_missing_response() != Some(unacked);
        let has_reaction = limit.has_reaction();
        let rtt = if has_reaction { recovery.sampled_rtt(to, cx.time) } else { None };
        let shown = recovery.on_acknowledged(to, is_telling, send, &qp.params, cx.time);
        limit.on_acknowledged(to - unacked, rtt, shown.was_lost, cx);
        send.acknowledge(to);
        frames.on_acknowledged(to, &mut cx.feedback);
        cx.out.observer.acknowledged(cx.now, cx.qpn, send.psn(to).previous());
        send.retire(qp, cx);
        if let Some(position) = shown.resume {
            send.resume(position);
        }
        // An RNR NAK before was an old one.
        timers.stop(Timer::RnrTimeout);
        self.restart_timers(qp, timers, cx.time);
        if let Some(packets) = shown.repair {
            let action = self.recovery.on_partial_ack(packets, &self.send, cx.time);
            // Costs no retry, so none can be missing.
            let _done = self.perform(action, qp, timers, cx).is_ok();
        }
    }

    /// A NAK for the oldest packet, `seq`, arrived, or a response behind a missing one.
    ///
    /// # Errors
    /// As [`perform`](Self::perform).
    pub(in crate::rc) fn on_nak<O: Observer>(
        &mut self,
        cause: RetransmitCause,
        seq: u64,
        qp: &QpContext,
        timers: &mut Timers,
        cx: &mut Context<'_, O>,
    ) -> Result<(), CompletionStatus> {
        let action = self.recovery.on_nak(cause, seq, &self.send, cx.time);
        let is_repair = matches!(action, Action::Wait(_) | Action::Repair(_));
        if is_repair || action == Action::RepairGaps {
            // The peer has responded, and the repair may wait for a packet that is late. Once until
            // there is progress, since other NAKs are ignored.
            if let Some(wait) = qp.params.ack_timeout {
                timers.arm(Timer::AckTimeout, cx.time + wait);
            }
        }
        if is_repair {
            self.limit.on_repaired(1, self.recovery.is_rtt_inflated(), &self.send, cx);
        }
        self.perform(action, qp, timers, cx)
    }

    /// Does what the loss recovery says.
    ///
    /// # Errors
    /// No retry is left: the request in front ends with this status.
    pub(in crate::rc) fn perform<O: Observer>(
        &mut self,
        action: Action,
        qp: &QpContext,
        timers: &mut Timers,
        cx: &mut Context<'_, O>,
    ) -> Result<(), CompletionStatus> {
        match action {
            Action::None => {}
            Action::GoBack { cause, has_cost } => self.go_back(cause, has_cost, qp, timers, cx),
            Action::Repair(packets) => self.repair(packets, qp, timers, cx),
            Action::RepairGaps => self.arm_gap_timer(timers),
            Action::Wait(until) => timers.arm(Timer::Probe, until),
            Action::WaitForResponse(until) => self.arm_probe_timer_at(until, timers),
            //= rule rc-rnr-wait: InfiniBand, clause not known; rxe_req.c: rnr_nak_timer
            //# After an RNR NAK a requester sends nothing before the time that it names has passed.
            Action::WaitForReceive(until) => {
                timers.stop(Timer::AckTimeout);
                timers.stop(Timer::Probe);
                timers.arm(Timer::RnrTimeout, until);
            }
            Action::GiveUp(status) => {
                match status {
                    CompletionStatus::RnrRetryExceeded => {
                        cx.counters().retry_rnr_exceeded_err += 1;
                    }
                    _ => cx.counters().retry_exceeded_err += 1,
                }
                return Err(status);
            }
        }
        Ok(())
    }

    /// Goes on from `position`, since less is missing than is sent again.
    pub(in crate::rc) fn resume(&mut self, position: Option<SendPosition>) {
        if let Some(position) = position {
            self.send.resume(position);
        }
    }

    /// Sends everything unacknowledged again, oldest first. `has_cost`: a retry was spent on it.
    fn go_back<O: Observer>(
        &mut self,
        cause: RetransmitCause,
        has_cost: bool,
        qp: &QpContext,
        timers: &mut Timers,
        cx: &mut Context<'_, O>,
    ) {
        let unacked = self.send.unacked();
        cx.counters().completer_retry_err += 1;
        cx.counters().probe_timeout += u64::from(cause == RetransmitCause::ProbeTimeout);
        self.frames.on_retransmit(cause, unacked, &mut cx.feedback);
        self.limit.on_go_back(cause, cx);
        self.recovery.begin_go_back(cause, &self.send, cx.time);
        self.send.go_back();
        timers.stop(Timer::Probe);
        if has_cost {
            // What costs no retry must not extend the ACK timeout.
            timers.stop(Timer::AckTimeout);
        }
        self.keep_timed(qp, timers, cx.time);
        cx.out.observer.retransmit(cx.now, cx.qpn, self.send.psn(unacked), cause);
    }

    /// Sends the oldest packets again, and then what follows those that are in flight.
    fn repair<O: Observer>(
        &mut self,
        packets: u32,
        qp: &QpContext,
        timers: &mut Timers,
        cx: &mut Context<'_, O>,
    ) {
        let unacked = self.send.unacked();
        cx.counters().selective_repeat += 1;
        self.frames.on_repair(unacked, &mut cx.feedback);
        self.recovery.begin_repair(packets, &self.send, cx.time);
        self.send.go_back();
        timers.stop(Timer::Probe);
        self.keep_timed(qp, timers, cx.time);
        let (psn, cause) = (self.send.psn(unacked), RetransmitCause::SequenceNak);
        cx.out.observer.retransmit(cx.now, cx.qpn, psn, cause);
    }

    /// The peer has executed everything before `to`, though not all is acknowledged yet.
    pub(in crate::rc) fn on_executed(&mut self, to: u64, now: Instant) {
        let position = self.recovery.on_executed(to, &self.send, now);
        self.resume(position);
    }

    /// As [`on_executed`](Self::on_executed): returns the span in which responses may be missing
    /// that is not looked through yet.
    pub(in crate::rc) fn take_executed_span(&mut self, to: u64) -> Option<Range<u64>> {
        self.recovery.take_executed_span(to, &self.send)
    }

    /// The peer has reported gaps in what is before `end`.
    pub(in crate::rc) fn on_reported<O: Observer>(&self, end: u64, cx: &mut Context<'_, O>) {
        self.frames.on_reported(end, &mut cx.feedback);
    }

    /// Returns true if reports have repaired enough: a peer that contradicts itself gets nothing more.
    pub(in crate::rc) fn has_repaired_enough(&self) -> bool {
        self.recovery.has_repaired_enough(self.limit.size())
    }

    /// Arms the timers that are missing. The ACK timer runs as long as a request has to end, also
    /// while nothing can be sent, unless the RNR timer runs.
    #[inline]
    pub(crate) fn keep_timed(&mut self, qp: &QpContext, timers: &mut Timers, time: Instant) {
        if !self.send.has_to_end() {
            timers.stop(Timer::AckTimeout);
            return;
        }
        //= rule rc-ack-timeout-never: InfiniBand, clause not known; rxe_req.c: update_state
        //# An ACK timeout of 0 means that no timer runs.
        let Some(wait) = qp.params.ack_timeout else { return };
        if self.recovery.is_in_rnr_wait() {
            return;
        }
        let is_in_flight = self.send.in_flight() > 0;
        if !timers.is_armed(Timer::AckTimeout) || (self.recovery.is_unsent() && is_in_flight) {
            timers.arm(Timer::AckTimeout, time + wait);
            self.recovery.on_ack_timer_armed(!is_in_flight);
        }
        if is_in_flight && !timers.is_armed(Timer::Probe) {
            self.arm_probe_timer(time, timers);
        }
    }

    /// As [`keep_timed`](Self::keep_timed), and restarts the timers that run.
    #[inline]
    fn restart_timers(&mut self, qp: &QpContext, timers: &mut Timers, time: Instant) {
        timers.stop(Timer::Probe);
        match qp.params.ack_timeout.filter(|_| self.send.has_to_end()) {
            Some(wait) => {
                timers.arm(Timer::AckTimeout, time + wait);
                let is_in_flight = self.send.in_flight() > 0;
                self.recovery.on_ack_timer_armed(!is_in_flight);
                if is_in_flight {
                    self.arm_probe_timer(time, timers);
                }
            }
            None => timers.stop(Timer::AckTimeout),
        }
    }

    /// Arms the probe timer, counting from `base`, unless the ACK timeout expires before.
    #[inline]
    pub(in crate::rc) fn arm_probe_timer(&self, base: Instant, timers: &mut Timers) {
        self.arm_probe_timer_at(self.recovery.probe_deadline(base), timers);
    }

    #[inline]
    pub(super) fn arm_probe_timer_at(&self, at: Instant, timers: &mut Timers) {
        if timers.at(Timer::AckTimeout).is_some_and(|later| at < later) {
            timers.arm(Timer::Probe, at);
        }
        if !self.recovery.is_open() {
            self.arm_gap_timer(timers);
        }
    }

    /// Arms the probe timer for the next gap that is due, if that is earlier.
    pub(in crate::rc) fn arm_gap_timer(&self, timers: &mut Timers) {
        if let Some(at) = self.recovery.next_gap_due_at()
            && timers.at(Timer::Probe).is_none_or(|probe| at < probe)
        {
            timers.arm(Timer::Probe, at);
        }
    }
}
