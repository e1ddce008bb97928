//! The timers of a requester.

use core::time::Duration;

use super::Requester;
use crate::context::Context;
use crate::peer_window::PeerView;
use crate::qp::context::QpContext;
use crate::timers::{Timer, Timers};
use crate::{CompletionStatus, Instant, Observer};

impl Requester {
    /// The queue pair is scheduled after each timer.
    pub(crate) fn on_timer(&mut self, now: Instant) {
        self.limit.on_timer(now);
    }

    /// Returns the instant at which a train may leave that waits.
    pub(crate) fn wakes_at(&self) -> Option<Instant> {
        self.limit.wakes_at()
    }

    /// Returns true if a timer ends every request that has to end by itself.
    pub(crate) fn is_timed(&self, qp: &QpContext, timers: &Timers) -> bool {
        if !self.send.has_to_end() {
            return true;
        }
        match self.recovery.is_in_rnr_wait() {
            true => timers.is_armed(Timer::RnrTimeout),
            false => qp.params.ack_timeout.is_none() || timers.is_armed(Timer::AckTimeout),
        }
    }

    /// This timer expired; `peer` is what all queue pairs know of the peer.
    ///
    /// # Errors
    /// No retry is left: the request in front ends with this status.
    pub(crate) fn on_timeout<O: Observer>(
        &mut self,
        timer: Timer,
        peer: PeerView,
        qp: &QpContext,
        timers: &mut Timers,
        cx: &mut Context<'_, O>,
    ) -> Result<(), CompletionStatus> {
        let action = match timer {
            Timer::AckTimeout => return self.on_ack_timeout(qp, peer, timers, cx),
            Timer::Probe => self.recovery.on_probe_timeout(&self.send, cx.time),
            Timer::RnrTimeout => self.recovery.on_rnr_timeout(),
        };
        self.perform(action, qp, timers, cx)
    }

    /// The local ACK timeout expired.
    fn on_ack_timeout<O: Observer>(
        &mut self,
        qp: &QpContext,
        peer: PeerView,
        timers: &mut Timers,
        cx: &mut Context<'_, O>,
    ) -> Result<(), CompletionStatus> {
        let Some(wait) = qp.params.ack_timeout else { return Ok(()) };
        if !self.send.has_to_end() || self.recovery.is_in_rnr_wait() {
            return Ok(());
        }
        if self.recovery.is_unsent() {
            // Other queue pairs may be first as long as the peer responds to them.
            if !peer.is_blocked && peer.changed_at + wait <= cx.time {
                cx.counters().ack_timeout += 1;
                let action = self.recovery.on_unsent_timeout();
                self.perform(action, qp, timers, cx)?;
            }
            timers.arm(Timer::AckTimeout, cx.time + wait);
            return Ok(());
        }
        if self.extend_ack_timeout(wait, timers, cx.time) {
            return Ok(());
        }
        cx.counters().ack_timeout += 1;
        let action = self.recovery.on_ack_timeout();
        self.perform(action, qp, timers, cx)
    }

    /// Extends the ACK timeout if no packet had requested a response when it started: sends a probe,
    /// or grants the rest of the time. Returns true if it is extended.
    fn extend_ack_timeout(&mut self, wait: Duration, timers: &mut Timers, now: Instant) -> bool {
        if !self.send.has_requested_ack() && self.recovery.probe_instead(&self.send) {
            timers.stop(Timer::Probe);
            // Counts from when the probe is sent, if it can be.
            timers.arm(Timer::AckTimeout, now + wait);
            self.recovery.on_ack_timer_armed(true);
            return true;
        }
        let base = self.recovery.probe_base();
        let over = base + wait;
        if over > now {
            timers.arm(Timer::AckTimeout, over);
            self.arm_probe_timer(base, timers);
        }
        over > now
    }
}
