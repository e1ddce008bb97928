//! What limits the packets that a requester has in flight: its window, and its reaction to congestion.

use alloc::boxed::Box;
use core::time::Duration;

use roce_wire::PathMtu;

use super::loss_allowance::LossAllowance;
use super::reaction::Reaction;
use super::send_window::SendWindow;
use crate::congestion::CongestionAlgorithm;
use crate::context::Context;
use crate::qp::context::QpContext;
use crate::rc::send_state::SendState;
use crate::{EndpointConfig, Instant, Observer, RetransmitCause};

/// The send window, and the reaction point while congestion control limits the sender.
#[derive(Debug)]
pub(super) struct SendLimit {
    window: SendWindow,
    reaction: Option<Box<Reaction>>,
    /// Losses that do not count.
    allowance: LossAllowance,
    /// First sequence number behind those of which one loss counts with the latest.
    loss_end: u64,
}

impl SendLimit {
    pub(super) fn new(config: &EndpointConfig, mtu: PathMtu) -> Self {
        let window = SendWindow::new(&config.window, mtu);
        let reaction = Reaction::at_start(&config.congestion, &window, mtu);
        Self { window, reaction, allowance: LossAllowance::default(), loss_end: 0 }
    }

    /// Packets that may be in flight.
    #[inline]
    pub(super) const fn size(&self) -> u32 {
        self.window.size()
    }

    /// The size that losses never shrink the window below.
    #[inline]
    pub(super) const fn min(&self) -> u32 {
        self.window.min()
    }

    /// Returns true if congestion control limits the sender.
    #[inline]
    pub(super) const fn has_reaction(&self) -> bool {
        self.reaction.is_some()
    }

    /// Returns the rate in bits per second that limits the sender, if one does.
    pub(super) fn rate(&self) -> Option<u64> {
        self.reaction.as_ref().and_then(|reaction| reaction.rate())
    }

    /// Returns the first sequence number behind the present train.
    #[inline]
    pub(super) fn train_end(&self) -> u64 {
        self.reaction.as_ref().map_or(u64::MAX, |reaction| reaction.train_end())
    }

    /// Returns the instant at which a train may leave that waits.
    #[inline]
    pub(super) fn wakes_at(&self) -> Option<Instant> {
        self.reaction.as_ref()?.wakes_at()
    }

    /// The queue pair is scheduled after each timer.
    #[inline]
    pub(super) fn on_timer(&mut self, now: Instant) {
        if let Some(reaction) = &mut self.reaction {
            reaction.on_timer(now);
        }
    }

    /// Returns true if the next train, which begins at sequence number `next`, has to wait.
    #[inline]
    pub(super) fn is_paced(&mut self, next: u64, now: Instant) -> bool {
        self.reaction.as_mut().is_some_and(|reaction| reaction.begin_train(next, now))
    }

    /// So many packets, or responses requested, have left.
    #[inline]
    pub(super) fn on_sent(&mut self, packets: u64, qp: &QpContext, now: Instant) {
        if let Some(reaction) = self.reaction.as_mut().filter(|_| packets > 0) {
            reaction.on_sent(packets, qp.params.ack_timeout, now);
        }
    }

    /// The window blocked a packet.
    pub(super) fn on_window_limit(&mut self) {
        self.window.on_limit();
    }

    /// `packets` were acknowledged for the first time, the latest after the round trip `rtt`, if one was
    /// measured. `was_lost`: and a packet was lost.
    #[inline]
    pub(super) fn on_acknowledged<O: Observer>(
        &mut self,
        packets: u64,
        rtt: Option<Duration>,
        was_lost: bool,
        cx: &mut Context<'_, O>,
    ) {
        let before = self.size();
        if was_lost {
            self.window.on_loss();
            cx.feedback.is_lost = true;
        } else {
            self.window.on_progress(packets as u32); // below half the circle
        }
        self.note_resized(before, cx);
        if self.has_reaction() {
            self.react(packets, rtt, was_lost, cx);
        }
    }

    /// Packets were lost that are repaired alone: if they are many, shrinks the windows, that of
    /// the queue pair once for all losses among what is in flight.
    pub(super) fn on_repaired<O: Observer>(
        &mut self,
        packets: u64,
        is_rtt_inflated: bool,
        send: &SendState,
        cx: &mut Context<'_, O>,
    ) {
        // Without another sign of congestion each loss is one.
        let may_ignore =
            cx.config.congestion.algorithm != CongestionAlgorithm::Loss && !is_rtt_inflated;
        if self.allowance.ignores(packets, send.unacked()) && may_ignore {
            self.window.end_doubling();
            return;
        }
        cx.feedback.is_lost = true;
        if send.unacked() >= self.loss_end {
            let before = self.size();
            self.window.on_loss();
            self.note_resized(before, cx);
            if self.has_reaction() {
                self.react(0, None, true, cx);
            }
            self.loss_end = send.max_sent();
        }
    }

    /// Everything is sent again.
    pub(super) fn on_go_back<O: Observer>(
        &mut self,
        cause: RetransmitCause,
        cx: &mut Context<'_, O>,
    ) {
        let before = self.size();
        match cause {
            RetransmitCause::AckTimeout => self.window.on_timeout(),
            RetransmitCause::SequenceNak | RetransmitCause::ImpliedNak => self.window.on_loss(),
            RetransmitCause::RnrTimeout
            | RetransmitCause::TailProbe
            | RetransmitCause::ProbeTimeout => {}
        }
        self.note_resized(before, cx);
        if self.has_reaction() && self.size() < before {
            self.react(0, None, true, cx);
        }
    }

    /// A congestion notification packet arrived, or would be sent for a response of the peer.
    pub(super) fn on_cnp<O: Observer>(&mut self, qp: &QpContext, cx: &mut Context<'_, O>) {
        let Some(reaction) = self.begin_reaction(qp, cx) else { return };
        reaction.on_cnp(cx.time);
        self.follow_reaction(cx);
    }

    /// The next acknowledgement is to marked packets.
    #[cold]
    pub(super) fn on_becn<O: Observer>(&mut self, qp: &QpContext, cx: &mut Context<'_, O>) {
        if cx.config.congestion.algorithm == CongestionAlgorithm::Ecn
            && let Some(reaction) = self.begin_reaction(qp, cx)
        {
            reaction.on_becn();
        }
    }

    #[cold]
    fn react<O: Observer>(
        &mut self,
        packets: u64,
        rtt: Option<Duration>,
        was_lost: bool,
        cx: &mut Context<'_, O>,
    ) {
        if let Some(reaction) = &mut self.reaction {
            reaction.on_acknowledged(packets, rtt, was_lost, cx.time);
            self.follow_reaction(cx);
        }
    }

    fn begin_reaction<O: Observer>(
        &mut self,
        qp: &QpContext,
        cx: &Context<'_, O>,
    ) -> Option<&mut Reaction> {
        if self.reaction.is_none() {
            let (config, mtu) = (&cx.config.congestion, qp.params.mtu);
            self.reaction = Reaction::begin(config, &self.window, mtu, cx.time);
        }
        self.reaction.as_deref_mut()
    }

    fn follow_reaction<O: Observer>(&mut self, cx: &mut Context<'_, O>) {
        let Some(reaction) = &mut self.reaction else { return };
        let before = self.window.size();
        if reaction.apply(&mut self.window) {
            self.reaction = None;
        }
        self.note_resized(before, cx);
    }

    fn note_resized<O: Observer>(&self, before: u32, cx: &mut Context<'_, O>) {
        if self.size() != before {
            cx.out.observer.window_resized(cx.now, cx.qpn, self.size());
        }
    }
}
