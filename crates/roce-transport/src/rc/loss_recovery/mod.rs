//! Loss recovery of a queue pair: what was lost, and what the requester does about it.
//!
//! [`LossRecovery`] is told what arrives and which timers expire, and returns an [`Action`]. It sends nothing
//! and arms no timer.
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
//! Towards a peer that keeps packets behind a gap (`keeping_peer`) only what is missing is sent again (a
//! repair), and then new packets. An ACK within what was sent before the repair shows the next missing
//! packet, as a partial ACK of TCP. A repair is one packet, and doubles as long as the next one is missing
//! too. Where packets have been late, a repair waits for as long.
//!
//! # Selective repeat
//!
//! READ responses and answers to atomics behind a missing one are kept by the completer, which therefore
//! knows all gaps, and so does a requester whose peer reports gaps. Gaps of which it is known where they end
//! are repaired alone: that moves neither the window nor what is sent next.
//!
//! After go-back-N only the minimum window leaves until a response arrives: a ring that just
//! overflowed is still full.

mod gaps;
mod keeping_peer;
mod known_gaps;
mod lateness;
mod retries;
mod rtt;

use core::ops::Range;
use core::time::Duration;

use self::gaps::GapTiming;
use self::keeping_peer::KeepingPeer;
pub(crate) use self::known_gaps::DeferredNak;
use self::known_gaps::KnownGaps;
use self::lateness::Lateness;
use self::retries::{NakHandling, Retries};
use self::rtt::RttEstimator;
use crate::qp::context::QpParams;
use crate::rc::send_state::{OutstandingReads, SendPosition, SendState};
use crate::{CompletionStatus, Instant, RetransmitCause};

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

/// What is being done about a loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// Nothing: no loss is known.
    #[default]
    Open,
    /// A packet is sent again to draw a response.
    Probe(ProbeStep),
    /// Everything is sent again.
    GoBackN(Trigger),
    /// The oldest packets are sent again.
    Repair(RepairStep),
    /// Gaps are known, and each is repaired alone.
    Selective,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProbeStep {
    /// The probe is to be sent.
    Due,
    /// The oldest packet was sent as a probe, and the last one is to be sent.
    LastDue,
    Sent,
}

/// What go-back-N began with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trigger {
    /// The ACK timeout, or a missing response.
    Loss,
    Nak,
    /// A probe timeout, which may have been too early.
    ProbeTimeout,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RepairStep {
    /// The peer reported a missing packet, which may be late.
    Waits,
    /// A partial ACK arrived after a repair, so early that the next packet may be late.
    NextWaits,
    /// The repair is being sent.
    Sends,
    /// The repair was sent, and new packets after it.
    Sent,
}

/// The latest go-back-N or repair.
#[derive(Clone, Copy, Debug, Default)]
struct Resent {
    /// What was to be sent next before it, and before others that it interrupted.
    resume: SendPosition,
    /// First sequence number behind the repair, or behind the request with which the go-back-N begins.
    end: u64,
    /// Packets of the repair; in a go-back-N after a NAK those that may be in flight.
    packets: u32,
    /// Its time, or that of the NAK that may still become one.
    at: Instant,
}

/// What the requester does next about a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Action {
    None,
    /// Send everything unacknowledged again, oldest first. `has_cost`: a retry was spent on it.
    GoBack {
        cause: RetransmitCause,
        has_cost: bool,
    },
    /// Send so many packets again, the oldest, and then what follows those in flight.
    Repair(u32),
    /// Send the known gaps again, each when it is due.
    RepairGaps,
    /// Wait until then: what is missing may still arrive by itself.
    Wait(Instant),
    /// Wait until then for a response to the first packet that requests one.
    WaitForResponse(Instant),
    /// Send nothing until then: the peer has no receive.
    WaitForReceive(Instant),
    /// End the request in front: no retry is left.
    GiveUp(CompletionStatus),
}

/// What an acknowledgement shows of losses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Acknowledged {
    /// The probe timeout before was due to a loss.
    pub(crate) was_lost: bool,
    /// Less is missing than is sent again: position to resume.
    pub(crate) resume: Option<SendPosition>,
    /// The next packets are missing too: how many to repair.
    pub(crate) repair: Option<u32>,
}

/// A packet that is sent again to draw a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Probe {
    Oldest,
    Last,
}

/// Maximum packets sent again after a NAK before the peer's response shows whether it keeps those
/// behind them. Of READs and atomics it is one request.
const FIRST_RESENT: u32 = 4;
/// How their number grows with each response.
const RESENT_GROWTH: u32 = 4;
/// Maximum packets of a repair.
const MAX_REPAIR: u32 = 8;

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

    /// Returns true if the ACK timer was armed while nothing was in flight, and nothing has been sent since.
    #[inline]
    pub(crate) fn is_unsent(&self) -> bool {
        self.is_unsent
    }

    /// The ACK timer is armed. `is_unsent`: while nothing is in flight, or to count from what is sent next.
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

    /// Returns true if packets wait in a queue on the path: the round trip is far longer than the shortest,
    /// and than what a software peer may be busy.
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

    /// Returns true if the peer has executed packet `seq`, which is part of a gap: the response is missing.
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

/// What the requester has sent again.
impl LossRecovery {
    /// Takes the probe that is to be sent: the oldest packet in flight, or the last one. `has_both`: they
    /// differ.
    pub(crate) fn take_probe(&mut self, has_both: bool) -> Option<Probe> {
        let (step, probe) = match self.phase {
            Phase::Probe(ProbeStep::Due)
                if has_both && self.rtt.is_known() && self.peer_keeps() =>
            {
                (ProbeStep::LastDue, Probe::Oldest)
            }
            Phase::Probe(ProbeStep::Due | ProbeStep::LastDue) => (ProbeStep::Sent, Probe::Last),
            _ => return None,
        };
        self.phase = Phase::Probe(step);
        Some(probe)
    }

    /// Packet `seq` is sent again as a probe.
    pub(crate) fn on_probe(&mut self, seq: u64) {
        self.keeping.on_resent(seq + 1);
    }

    /// The requester is about to send everything again.
    pub(crate) fn begin_go_back(&mut self, cause: RetransmitCause, send: &SendState, now: Instant) {
        if let Some(known) = &mut self.known {
            known.forget();
        }
        let (oldest, position) = (send.unacked(), send.position());
        let request = send.reads().find(oldest);
        self.resent.at = now;
        self.resent.packets = if request.is_some() { 1 } else { FIRST_RESENT };
        self.resent.end = request.map_or(oldest + 1, |request| request.end);
        if !matches!(
            self.phase,
            Phase::GoBackN(Trigger::ProbeTimeout | Trigger::Nak) | Phase::Repair(RepairStep::Sends)
        ) {
            self.resent.resume = position;
        }
        let is_alone = matches!(self.phase, Phase::Open | Phase::Probe(ProbeStep::Sent));
        let is_lone_nak = is_alone && cause == RetransmitCause::SequenceNak;
        let sent_to = position.seq.max(self.resent.resume.seq);
        self.keeping.on_go_back(self.resent.end, sent_to, is_lone_nak);
        self.phase = match cause {
            // Nothing was lost.
            RetransmitCause::RnrTimeout => Phase::Open,
            RetransmitCause::ProbeTimeout => Phase::GoBackN(Trigger::ProbeTimeout),
            RetransmitCause::SequenceNak => Phase::GoBackN(Trigger::Nak),
            _ => Phase::GoBackN(Trigger::Loss),
        };
        // A probe timeout may be too early. If the round trip were not measured then, it would
        // stay too early.
        if cause != RetransmitCause::ProbeTimeout {
            self.rtt.on_resent(oldest, now);
        }
    }

    /// The requester is about to send the oldest `packets` again.
    pub(crate) fn begin_repair(&mut self, packets: u32, send: &SendState, now: Instant) {
        self.retries.naks = NakHandling::Ignore;
        self.resent.at = now;
        if !self.is_repairing() {
            self.resent.resume = send.position();
        }
        self.resent.packets = packets;
        self.resent.end = (send.unacked() + u64::from(packets)).min(self.resent.resume.seq);
        self.keeping.on_resent(self.resent.end);
        self.phase = Phase::Repair(RepairStep::Sends);
        self.rtt.discard_sample_before(self.resent.end);
    }

    /// Everything before `next` is sent. Returns the position to resume if that is all of a repair.
    pub(crate) fn end_repair(&mut self, next: u64) -> Option<SendPosition> {
        if !self.is_repairing() || next < self.resent.end {
            return None;
        }
        self.phase = Phase::Repair(RepairStep::Sent);
        Some(self.resent.resume)
    }

    /// What `span` contains, a part of a gap, was sent again behind everything before `sent_to`, or requested
    /// again if it is of responses.
    pub(crate) fn on_gap_repaired(
        &mut self,
        span: Range<u64>,
        is_response: bool,
        sent_to: u64,
        now: Instant,
    ) {
        if !is_response {
            self.resent.end = span.end;
            self.keeping.on_resent(span.end);
        }
        self.rtt.discard_sample_in(&span);
        self.lateness.on_loss();
        let known = self.known();
        known.repaired += span.end - span.start;
        known.gaps.on_repaired(span, sent_to, now);
    }
}

/// Timeouts.
impl LossRecovery {
    /// The probe timeout expired.
    pub(crate) fn on_probe_timeout(&mut self, send: &SendState, now: Instant) -> Action {
        if send.in_flight() == 0 || self.is_in_rnr_wait() {
            return Action::None;
        }
        if matches!(self.phase, Phase::Repair(RepairStep::Waits | RepairStep::NextWaits)) {
            return Action::Repair(1);
        }
        if let Some(known) = &mut self.known {
            known.gaps.expire(now);
        }
        if self.has_gaps_due(send.reads()) {
            return Action::None;
        }
        let at = self.probe_deadline(self.probe_base);
        if at > now {
            // Before that no packet requested a response.
            return Action::WaitForResponse(at);
        }
        let is_first = self.retries.on_probe_timeout();
        if self.probe_instead(send) {
            return Action::None;
        }
        if self.is_selective() && is_first {
            self.known().gaps.expire_all();
            return Action::None;
        }
        self.retries.naks = NakHandling::NoRetryCost;
        Action::GoBack { cause: RetransmitCause::ProbeTimeout, has_cost: false }
    }

    /// Returns true, and a probe is due, if one can be sent instead of all packets.
    //= rule rc-tail-loss-probe: RFC 8985 section 7
    //# At the first probe timeout the last packet is sent again, instead of all.
    pub(crate) fn probe_instead(&mut self, send: &SendState) -> bool {
        let may_probe = self.is_open() && send.last_in_flight().is_some();
        if may_probe {
            self.phase = Phase::Probe(ProbeStep::Due);
        }
        may_probe
    }

    /// The local ACK timeout expired.
    pub(crate) fn on_ack_timeout(&mut self) -> Action {
        if !self.retries.spend() {
            return Action::GiveUp(CompletionStatus::RetryExceeded);
        }
        self.retries.naks = NakHandling::NoRetryCost;
        Action::GoBack { cause: RetransmitCause::AckTimeout, has_cost: true }
    }

    /// The local ACK timeout expired, and nothing could be sent before.
    pub(crate) fn on_unsent_timeout(&mut self) -> Action {
        if self.retries.spend() {
            return Action::None;
        }
        Action::GiveUp(CompletionStatus::RetryExceeded)
    }

    /// The wait that an RNR NAK requires has passed.
    pub(crate) fn on_rnr_timeout(&mut self) -> Action {
        if !self.is_in_rnr_wait() {
            return Action::None;
        }
        //= also rc-rnr-then-nak
        self.retries.naks = NakHandling::NoRetryCost;
        Action::GoBack { cause: RetransmitCause::RnrTimeout, has_cost: false }
    }
}

/// Responses of the peer.
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

    /// Returns the position to resume if an ACK up to `to` shows that less is missing than is sent again: a
    /// probe timeout was too early, or the peer keeps packets.
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
            //# A sequence NAK that follows an RNR NAK is for what was sent behind it, and costs no retry: neither
            //# while the requester waits nor after that.
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

    /// The peer has executed everything before `to`, though not all is acknowledged yet. Returns the position
    /// to resume if less is missing than is sent again.
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
