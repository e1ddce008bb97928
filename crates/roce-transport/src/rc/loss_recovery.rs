//! Loss recovery of a queue pair: what was lost, and what the requester does about it.
//!
//! [`LossRecovery`] is told what arrives and which timers expire, and returns an [`Action`]. It
//! sends nothing and arms no timer. `responses` and `timeouts` decide, `resend` notes what the
//! requester has done about it.
//!
//! # Without a NAK
//!
//! A responder sends one NAK for a gap, and the standard lets it send no other before the gap closes. If
//! that NAK is lost, or the first packet that is sent again, or the last packets of all, only a timer
//! helps. The ACK timeout is milliseconds to seconds, and consumes a retry. So a probe timeout
//! (2·SRTT + 4·RTTVAR, doubled per expiry, never beyond the ACK timeout) runs beside it:
//!
//! 1. First expiry: the last packet is sent again (tail loss probe). If only its ACK was late or lost, the
//!    peer acknowledges it again; if a packet is missing and no NAK was sent, the peer sends one. Once a round
//!    trip is known, the oldest packet leaves before it to a peer that keeps packets: a gap whose NAK was lost
//!    begins there. A peer that goes back N has dropped what is behind it, and a crowd of queue pairs
//!    that send two probes each overflows a short queue.
//! 2. Next expiry, or the first after a retransmission: go-back-N, without consuming a retry.
//!
//! The ACK timeout keeps running, so that a dead peer is given up when it would have been anyway.
//!
//! # Repairs
//!
//! Towards a peer that keeps packets behind a gap (`keeping_peer`) only what is missing is sent
//! again (a repair), and then new packets. An ACK within what was sent before the repair shows the
//! next missing packet, as a partial ACK of TCP. A repair is one packet, and doubles as long as the
//! next one is missing too. Where packets have been late, a repair waits for as long.
//!
//! # Selective repeat
//!
//! READ responses and answers to atomics behind a missing one are kept by the completer, which
//! therefore knows all gaps, and so does a requester whose peer reports gaps. Gaps of which it is
//! known where they end are repaired alone: that moves neither the window nor what is sent next.
//!
//! After go-back-N only the minimum window leaves until a response arrives: a ring that just
//! overflowed is still full.

mod action;
mod gaps;
mod keeping_peer;
mod known_gaps;
mod lateness;
mod phase;
mod resend;
mod responses;
mod retries;
mod rtt;
mod timeouts;

use alloc::boxed::Box;
use core::ops::Range;
use core::time::Duration;

pub(crate) use self::action::{Action, Probe};
use self::gaps::GapTiming;
use self::keeping_peer::KeepingPeer;
pub(crate) use self::known_gaps::DeferredNak;
use self::known_gaps::KnownGaps;
use self::lateness::Lateness;
use self::phase::{Phase, ProbeStep, RepairStep, Resent, Trigger};
use self::retries::{NakHandling, Retries};
use self::rtt::RttEstimator;
use crate::Instant;
use crate::qp::context::QpParams;
use crate::rc::send_state::{OutstandingReads, SendPosition, SendState};

/// State of the loss recovery of a queue pair.
#[derive(Debug)]
pub(crate) struct LossRecovery {
    phase: Phase,
    resent: Resent,
    retries: Retries,
    rtt: RttEstimator,
    /// Instant from which the probe timeout counts: that of the first packet that requests an ACK.
    probe_base: Instant,
    /// The ACK timer was armed while nothing was in flight, and nothing has been sent since.
    is_unsent: bool,
    lateness: Lateness,
    keeping: KeepingPeer,
    /// What is known of gaps, while there are some.
    known: Option<Box<KnownGaps>>,
}

/// What the requester asks while it sends.
impl LossRecovery {
    /// That of a new connection.
    pub(crate) fn new(params: &QpParams) -> Self {
        Self {
            phase: Phase::Open,
            resent: Resent::default(),
            retries: Retries::new(params),
            rtt: RttEstimator::default(),
            probe_base: Instant::default(),
            is_unsent: false,
            lateness: Lateness::new(params.gap_reports, params.ack_timeout),
            keeping: KeepingPeer::new(params.gap_reports),
            known: None,
        }
    }

    /// Returns true if no loss is known.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// Returns true if the peer has no receive, and nothing is sent until a timer fires.
    #[inline]
    pub(crate) fn is_in_rnr_wait(&self) -> bool {
        self.retries.naks == NakHandling::RnrWait
    }

    /// Returns true if what is sent next was sent before.
    #[inline]
    pub(crate) fn is_retransmitting(&self) -> bool {
        matches!(self.phase, Phase::GoBackN(_) | Phase::Repair(RepairStep::Sends))
    }

    /// Returns true if the next packet is part of a repair.
    #[inline]
    pub(crate) fn is_repairing(&self) -> bool {
        self.phase == Phase::Repair(RepairStep::Sends)
    }

    /// Packets that may be in flight now, where a window of `size` packets, at least `min`, admits them.
    #[inline]
    pub(crate) fn window(&self, size: u32, min: u32, send: &SendState) -> u32 {
        match self.phase {
            // At most `MAX_REPAIR`.
            Phase::Repair(RepairStep::Sends) => {
                (self.resent.end.saturating_sub(send.unacked())) as u32
            }
            Phase::GoBackN(Trigger::Nak) => size.min(self.resent.packets),
            Phase::GoBackN(_) => min,
            Phase::Selective => self.selective_window(size, send),
            _ => size,
        }
    }

    #[cold]
    fn selective_window(&self, size: u32, send: &SendState) -> u32 {
        self.known.as_ref().map_or(size, |known| known.window(size, send))
    }

    /// A packet that requests a response was sent for the first time.
    #[inline]
    pub(crate) fn on_sent(&mut self, seq: u64, now: Instant) {
        self.rtt.on_sent(seq, now);
    }

    /// A packet was sent while none in flight had requested a response: the probe timeout counts
    /// from now on.
    #[inline]
    pub(crate) fn rebase_probe_timer(&mut self, now: Instant) {
        // After a retransmission it counts from the first transmission.
        if self.is_open() {
            self.probe_base = now;
        }
    }

    /// Returns true if the ACK timer was armed while nothing was in flight, and nothing has been
    /// sent since.
    #[inline]
    pub(crate) fn is_unsent(&self) -> bool {
        self.is_unsent
    }

    /// The ACK timer is armed. `is_unsent`: while nothing is in flight, or to count from what is
    /// sent next.
    #[inline]
    pub(crate) fn on_ack_timer_armed(&mut self, is_unsent: bool) {
        self.is_unsent = is_unsent;
    }

    /// Instant from which the probe timeout counts.
    #[inline]
    pub(crate) fn probe_base(&self) -> Instant {
        self.probe_base
    }

    /// Deadline of a probe timeout that counts from `base`.
    #[inline]
    pub(crate) fn probe_deadline(&self, base: Instant) -> Instant {
        //= rule rc-probe-backoff: RFC 9002 section 6.2.1
        //# The probe timeout doubles with each expiry in a row.
        let doubled = 1 << self.retries.probe_timeouts.min(20);
        let wait = self.rtt.probe_timeout_nanos().saturating_mul(doubled);
        Instant::from_nanos(base.as_nanos().saturating_add(wait))
    }

    /// Returns the instant at which a gap is due next.
    pub(crate) fn next_gap_due_at(&self) -> Option<Instant> {
        self.known.as_ref().filter(|_| self.is_selective())?.gaps.next_due_at()
    }

    /// Returns true if the round trip of a packet is being measured.
    #[inline]
    pub(crate) fn is_timing(&self) -> bool {
        self.rtt.is_timing()
    }

    /// Returns the round trip that an acknowledgement of everything before `to` shows.
    pub(crate) fn sampled_rtt(&self, to: u64, now: Instant) -> Option<Duration> {
        self.rtt.sampled(to, now)
    }

    /// Returns true if packets wait in a queue on the path: the round trip is far longer than the
    /// shortest, and than what a software peer may be busy.
    pub(crate) fn is_rtt_inflated(&self) -> bool {
        self.rtt.is_inflated()
    }

    /// Returns true if a packet that was sent before is to be sent now: a probe, or a gap.
    #[inline]
    pub(crate) fn has_to_repeat(&self, reads: &OutstandingReads) -> bool {
        !self.is_open() && (self.is_probe_due() || self.has_gaps_due(reads))
    }

    fn is_probe_due(&self) -> bool {
        matches!(self.phase, Phase::Probe(ProbeStep::Due | ProbeStep::LastDue))
    }

    /// Returns true if gaps are to be repaired now.
    pub(crate) fn has_gaps_due(&self, reads: &OutstandingReads) -> bool {
        self.is_selective() && self.next_gap_due(0, reads).is_some()
    }

    /// Returns the first gap from `from` on that is to be repaired now.
    pub(crate) fn next_gap_due(&self, from: u64, reads: &OutstandingReads) -> Option<Range<u64>> {
        self.known.as_ref()?.next_due(from, reads, self.peer_keeps())
    }

    /// Returns true if the peer has executed packet `seq`, which is part of a gap: the response is
    /// missing.
    pub(crate) fn is_executed(&self, seq: u64) -> bool {
        seq < self.executed_to()
    }

    /// Returns true if gaps may be repaired alone: nothing else is being sent again.
    pub(crate) fn may_be_selective(&self) -> bool {
        matches!(self.phase, Phase::Open | Phase::Selective)
    }

    /// Returns true if gaps are known that are repaired alone.
    #[inline]
    pub(crate) fn is_selective(&self) -> bool {
        self.phase == Phase::Selective
    }

    /// Returns true if the peer has agreed to report gaps, and nothing has contradicted it.
    pub(crate) fn peer_reports(&self) -> bool {
        self.keeping.reports()
    }

    /// Returns true if the peer is taken for one that keeps packets behind a missing one.
    pub(crate) fn peer_keeps(&self) -> bool {
        self.keeping.is_believed()
    }

    /// Returns true if reports have repaired enough, with a window of so many packets.
    pub(crate) fn has_repaired_enough(&self, window: u32) -> bool {
        self.known.as_ref().is_some_and(|known| known.has_repaired_enough(window))
    }
}

/// Gaps, and what the peer has executed behind them.
impl LossRecovery {
    /// What is known of gaps, made if nothing was.
    fn known(&mut self) -> &mut KnownGaps {
        self.known.get_or_insert_default()
    }

    /// Returns true if something is known of gaps.
    #[inline]
    pub(crate) fn knows_gaps(&self) -> bool {
        self.known.is_some()
    }

    /// Forgets what is known of gaps if there are none any more.
    pub(crate) fn release_gaps(&mut self) {
        self.known.take_if(|known| known.gaps.is_empty());
    }

    /// The peer has executed everything before it, as a response behind a missing one shows.
    pub(crate) fn executed_to(&self) -> u64 {
        self.known.as_ref().map_or(0, |known| known.executed_to)
    }

    /// Keeps a NAK for packet `seq` until the responses before it have arrived.
    pub(crate) fn defer_nak(&mut self, seq: u64, nak: DeferredNak) {
        self.known().defer(seq, nak);
    }

    /// Takes the NAK for packet `unacked`, before which nothing is missing now.
    pub(crate) fn take_deferred_nak(&mut self, unacked: u64) -> Option<DeferredNak> {
        self.known.as_mut()?.take_deferred(unacked)
    }

    /// As [`on_executed`](Self::on_executed), once the requester has resumed: returns the span in which
    /// responses may be missing that is not looked through yet.
    pub(crate) fn take_executed_span(&mut self, to: u64, send: &SendState) -> Option<Range<u64>> {
        let span = self.known().on_executed(to, send);
        Some(span).filter(|span| !span.is_empty() && self.may_be_selective())
    }

    /// The peer reports gaps. Returns the position to resume if packets are being sent again after a NAK.
    pub(crate) fn on_gap_report(&mut self) -> Option<SendPosition> {
        let position = match self.phase {
            Phase::GoBackN(Trigger::Nak) | Phase::Repair(RepairStep::Sends) => {
                Some(self.resent.resume)
            }
            Phase::Repair(_) => None,
            _ => return None,
        };
        self.phase = Phase::Open;
        position
    }

    /// Returns true if the peer has reported nothing as new as the packet before `end`.
    pub(crate) fn is_new_report(&mut self, end: u64) -> bool {
        end > self.known().reported_to
    }

    /// The peer has reported what is before `end`.
    pub(crate) fn note_reported(&mut self, end: u64) {
        let known = self.known();
        known.reported_to = known.reported_to.max(end);
    }

    /// The peer has packet `seq` of `span` if that is being measured.
    pub(crate) fn on_kept_by_peer(&mut self, span: &Range<u64>, now: Instant) {
        self.rtt.on_reported(span, now);
    }

    /// Of the sequence numbers in `span` those in `missing` are missing.
    pub(crate) fn note_gaps(
        &mut self,
        span: Range<u64>,
        missing: impl IntoIterator<Item = Range<u64>>,
        now: Instant,
    ) {
        let timing = self.gap_timing();
        let gaps = &mut self.known().gaps;
        let late = gaps.update(span, missing, timing, now);
        let has_gaps = !gaps.is_empty();
        if let Some(late) = late {
            self.lateness.on_late(late);
        }
        self.phase = if has_gaps { Phase::Selective } else { Phase::Open };
    }

    /// Returns how gaps are timed.
    fn gap_timing(&self) -> GapTiming {
        if !self.rtt.is_known() {
            let lateness = self.lateness.nanos();
            return GapTiming { lateness, again: self.rtt.probe_timeout_nanos(), min_rtt: 0 };
        }
        let lateness = self.lateness.expected_nanos(&self.rtt);
        let again = self.rtt.longest_nanos().max(self.rtt.smoothed_nanos() + lateness);
        // A repair is a packet alone, and comes back sooner than what ends a train.
        let min_rtt = self.rtt.min_nanos() / 8 * 7;
        GapTiming { lateness, again, min_rtt }
    }
}
