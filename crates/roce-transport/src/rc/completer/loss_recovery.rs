//! Loss recovery without a NAK.
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
//! Towards a peer that keeps packets behind a gap (`keeping_peer`) only what is missing is sent again (a
//! repair), and then new packets. An ACK within what was sent before the repair shows the next missing
//! packet, as a partial ACK of TCP. A repair is one packet, and doubles as long as the next one is missing
//! too. Where packets have been late, a repair waits for as long.
//!
//! READ responses and answers to atomics behind a missing one are kept by the requester, which therefore
//! knows all gaps: see `selective_repeat`.
//!
//! After go-back-N only the minimum window leaves until a response arrives: a ring that just
//! overflowed is still full.

mod tail_probe;

use core::ops::Range;
use core::time::Duration;

use crate::context::Context;
use crate::qp::context::QpContext;
use crate::rc::completer::gaps::GapTiming;
use crate::rc::completer::keeping_peer::KeepingPeer;
use crate::rc::completer::rtt::RttEstimator;
use crate::rc::requester::{NakAction, Requester};
use crate::timers::{Timer, Timers};
use crate::{Instant, Observer, RetransmitCause};

/// State of the loss recovery of a queue pair.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LossRecovery {
    rtt: RttEstimator,
    state: State,
    /// Probe timeouts in a row, 255 at most.
    expiries: u8,
    /// Position before the last go-back-N or repair.
    undo_to: SendPosition,
    /// First sequence number behind the last repair, or behind the request with which a go-back-N begins.
    repair_end: u64,
    /// Packets of the last repair; in a go-back-N after a NAK those that may be in flight.
    resent: u32,
    /// Time of the last retransmission, or of the NAK that may still become one.
    repaired_at: Instant,
    /// How late packets were that the peer reported missing, in nanoseconds: a repair waits for as
    /// long.
    lateness: u32,
    keeping: KeepingPeer,
    /// First sequence number behind all that may have been sent twice.
    resent_to: u64,
    /// A go-back-N has begun with a NAK for packets that were all sent once, and nothing has been acknowledged
    /// since.
    is_first_nak: bool,
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
    /// The oldest packet was sent as a probe, and the last one is to be sent.
    LastProbePending,
    /// The probe was sent.
    ProbeSent,
    /// Go-back-N after the ACK timeout or a missing response.
    GoBackN,
    /// Go-back-N after a NAK.
    NakGoBackN,
    /// Go-back-N after a probe timeout.
    PtoGoBackN,
    /// The peer reported a missing packet, which may be late.
    RepairWait,
    /// A partial ACK arrived after a repair, so early that the next packet may be late.
    PartialWait,
    /// A repair is being sent.
    Repair,
    /// The repair was sent, and new packets after it.
    RepairSent,
    /// Gaps are known, and each is repaired alone.
    Selective,
}

/// A packet that is sent again to draw a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Probe {
    Oldest,
    Last,
}

/// Maximum packets sent again after a NAK before the peer's response shows whether it keeps those
/// behind them. Of READs and atomics it is one request.
const FIRST_RESENT: u32 = 4;
/// How their number grows with each response.
const RESENT_GROWTH: u32 = 4;
/// Each missing packet shortens the wait for late ones by this part.
const LATENESS_DECAY: u32 = 16;
/// Lateness before any packet was late, in nanoseconds, where the first report names many gaps: they may all
/// close by themselves.
const INITIAL_LATENESS: u32 = 100_000;
/// Packets sent once that have to be acknowledged before the peer is taken for one that keeps packets.
const MIN_SENT_ONCE: u64 = 8;
/// Maximum packets of a repair.
const MAX_REPAIR: u32 = 8;

impl LossRecovery {
    /// That of a peer that has agreed to report gaps, or not.
    pub(crate) fn new(reports: bool, ack_timeout: Option<Duration>) -> Self {
        // A repair that waits must leave before the ACK timeout costs a retry.
        let nanos = ack_timeout.map_or(u128::MAX, |it| it.as_nanos() / 8);
        let patience = u32::try_from(nanos).unwrap_or(u32::MAX).min(INITIAL_LATENESS);
        let lateness = if reports { patience } else { 0 };
        Self { keeping: KeepingPeer::new(reports), lateness, ..Self::default() }
    }

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

    /// Returns the round trip that an acknowledgement of everything before `to` shows.
    pub(crate) fn sampled_rtt(&self, to: u64, now: Instant) -> Option<Duration> {
        self.rtt.sampled(to, now)
    }

    /// Everything before `to` is acknowledged, some of it for the first time. `is_telling`: not by a
    /// response with data. `was_lost`: see [`confirms_loss`](Self::confirms_loss).
    pub(crate) fn on_progress(&mut self, to: u64, is_telling: bool, was_lost: bool, now: Instant) {
        if was_lost {
            self.rtt.discard_sample();
        }
        self.rtt.on_acknowledged(to, now);
        self.expiries = 0;
        if self.state != State::Open {
            self.on_progress_after_loss(to, is_telling, now);
        }
    }

    #[cold]
    fn on_progress_after_loss(&mut self, to: u64, is_telling: bool, now: Instant) {
        if self.state == State::RepairWait {
            let late = now.saturating_since(self.repaired_at).as_nanos();
            self.note_lateness(u64::try_from(late).unwrap_or(u64::MAX));
        }
        let is_continued = match self.state {
            State::Repair | State::RepairSent => to < self.repair_end,
            // Without a round trip a late packet is known by what the peer has beyond it.
            State::NakGoBackN => to < self.undo_to.0 && !(is_telling && self.rtt.is_known()),
            // Until no gap is left.
            State::Selective => true,
            _ => false,
        };
        if !is_continued {
            self.state = State::Open;
        } else if self.state == State::NakGoBackN && to >= self.repair_end {
            self.resent = self.resent.saturating_mul(RESENT_GROWTH);
        }
    }

    /// A packet was so many nanoseconds late.
    pub(super) fn note_lateness(&mut self, nanos: u64) {
        // Others may be later still.
        let late = nanos.saturating_mul(2);
        self.lateness = self.lateness.max(u32::try_from(late).unwrap_or(u32::MAX));
    }

    /// The peer has executed everything before `to`, though not all is acknowledged yet.
    pub(super) fn on_executed(&mut self, to: u64, now: Instant) {
        self.rtt.on_acknowledged(to, now);
    }

    /// A response to `seq` arrived twice: what was taken for lost was late, unless it was sent before a
    /// go-back-N.
    #[cold]
    pub(super) fn on_duplicate(&mut self, seq: u64) {
        if seq >= self.undo_to.0 {
            let doubled = (2 * self.late_nanos()).min(self.rtt.probe_timeout_nanos());
            self.lateness = u32::try_from(doubled).unwrap_or(u32::MAX);
        }
    }

    /// Returns how gaps are timed.
    pub(super) fn gap_timing(&self) -> GapTiming {
        if !self.rtt.is_known() {
            let lateness = u64::from(self.lateness);
            return GapTiming { lateness, again: self.rtt.probe_timeout_nanos(), min_rtt: 0 };
        }
        let lateness = self.late_nanos();
        let again = self.rtt.longest_nanos().max(self.rtt.smoothed_nanos() + lateness);
        // A repair is a packet alone, and comes back sooner than what ends a train.
        let min_rtt = self.rtt.min_nanos() / 8 * 7;
        GapTiming { lateness, again, min_rtt }
    }

    /// Returns true if gaps may be repaired alone: nothing else is being sent again.
    pub(crate) fn may_be_selective(&self) -> bool {
        matches!(self.state, State::Open | State::Selective)
    }

    /// Returns true if the peer has agreed to report gaps, and nothing has contradicted it.
    pub(super) fn peer_reports(&self) -> bool {
        self.keeping.reports()
    }

    /// The peer reports gaps. Returns the position to resume if packets are being sent again after a NAK.
    pub(super) fn on_gap_report(&mut self) -> Option<SendPosition> {
        let position = match self.state {
            State::NakGoBackN | State::Repair => Some(self.undo_to),
            State::RepairWait | State::PartialWait | State::RepairSent => None,
            _ => return None,
        };
        self.state = State::Open;
        position
    }

    /// The peer has packet `seq` of `span` if that is being measured.
    pub(super) fn on_reported(&mut self, span: &Range<u64>, now: Instant) {
        self.rtt.on_reported(span, now);
    }

    /// Gaps are known, or none any more.
    pub(crate) fn set_selective(&mut self, has_gaps: bool) {
        self.state = if has_gaps { State::Selective } else { State::Open };
    }

    /// What `span` contains was sent again, or requested again if it is of responses.
    pub(crate) fn on_gap_repaired(&mut self, span: &Range<u64>, is_response: bool) {
        if !is_response {
            self.repair_end = span.end;
            self.resent_to = self.resent_to.max(span.end);
        }
        self.rtt.discard_sample_in(span);
        self.decay_lateness();
    }

    /// Returns true if gaps are known that are repaired alone.
    pub(crate) fn is_selective(&self) -> bool {
        self.state == State::Selective
    }

    /// Returns the packets to send again if an ACK up to `to` shows that the next one is missing:
    /// it was sent before the repair, or before the go-back-N, that has arrived.
    pub(crate) fn next_repair(&mut self, to: u64, next: u64) -> Option<u32> {
        let (sent_again, len) = match self.state {
            State::NakGoBackN if to > next && self.peer_keeps() => (next, 0),
            State::Repair | State::RepairSent | State::PartialWait => {
                (self.repair_end, self.resent)
            }
            _ => return None,
        };
        if to < sent_again || to >= self.undo_to.0 {
            return None;
        }
        let has_kept = to > sent_again;
        self.keeping.on_repair_arrived(has_kept);
        Some(if has_kept { 1 } else { (2 * len).clamp(1, MAX_REPAIR) })
    }

    /// Returns the instant until which the packet behind a partial ACK may arrive by itself: it was
    /// sent before the repair, but the ACK may not be one to the repair.
    pub(crate) fn wait_after_partial_ack(&mut self, now: Instant) -> Option<Instant> {
        if !self.rtt.is_known() {
            return None;
        }
        let nanos = self.rtt.smoothed_nanos() + self.late_nanos();
        let until = self.repaired_at + Duration::from_nanos(nanos);
        if until <= now {
            return None;
        }
        self.state = State::PartialWait;
        Some(until)
    }

    /// How late packets are expected to be: no later than a probe timeout.
    fn late_nanos(&self) -> u64 {
        let smoothed = self.rtt.smoothed_nanos();
        u64::from(self.lateness).clamp(smoothed / 8, self.rtt.probe_timeout_nanos())
    }

    /// A repair of `len` packets from `unacked` on begins, where `position` is what would be sent
    /// next.
    fn begin_repair(&mut self, unacked: u64, len: u32, position: SendPosition, now: Instant) {
        self.repaired_at = now;
        if self.state != State::Repair {
            self.undo_to = position;
        }
        self.resent = len;
        self.repair_end = (unacked + u64::from(len)).min(self.undo_to.0);
        self.resent_to = self.resent_to.max(self.repair_end);
        self.state = State::Repair;
        self.rtt.discard_sample_before(self.repair_end);
    }

    /// The peer reported a missing packet. Returns the instant until which it may still arrive by
    /// itself, if packets have been late.
    pub(crate) fn on_gap(&mut self, now: Instant) -> Option<Instant> {
        self.repaired_at = now;
        if !self.rtt.is_known() {
            return None;
        }
        let wait = self.late_nanos();
        self.decay_lateness();
        self.state = State::RepairWait;
        Some(now + Duration::from_nanos(wait))
    }

    /// A packet is taken for lost.
    fn decay_lateness(&mut self) {
        self.lateness -= self.lateness / LATENESS_DECAY;
    }

    /// Returns the position to resume if the repair is sent.
    pub(crate) fn end_repair(&mut self, next: u64) -> Option<SendPosition> {
        if self.state != State::Repair || next < self.repair_end {
            return None;
        }
        self.state = State::RepairSent;
        Some(self.undo_to)
    }

    /// Returns true if the next packet is part of a repair.
    pub(crate) fn is_repairing(&self) -> bool {
        self.state == State::Repair
    }

    /// Returns true if the peer is taken for one that keeps packets behind a missing one.
    pub(crate) fn peer_keeps(&self) -> bool {
        self.keeping.is_believed()
    }

    /// The peer misses packet `seq`. Right behind a repair that shows that it keeps nothing; then it gets
    /// everything again.
    pub(super) fn note_nak(&mut self, seq: u64) {
        self.keeping.on_repair_arrived(seq != self.repair_end);
    }

    /// Everything before `to` is executed, where a NAK has made the requester go back, and what is before
    /// `next` is sent again.
    ///
    /// A packet drew that NAK: it had arrived while an earlier one was missing, and a peer that goes back N
    /// dropped it. If nothing of what was sent before the NAK was sent twice, but for the first packets, and
    /// all of it is executed now, then the peer has kept that packet. Neither late packets nor repeated ones
    /// explain it, only a copy that the network made.
    pub(crate) fn note_evidence(&mut self, to: u64, next: u64) {
        let is_evidence = self.state == State::NakGoBackN
            && core::mem::take(&mut self.is_first_nak)
            && to >= self.undo_to.0
            && to >= next + MIN_SENT_ONCE;
        if is_evidence {
            self.keeping.on_evidence();
        }
    }

    /// Packet `seq` is sent again as a probe.
    fn on_probe(&mut self, seq: u64) {
        self.resent_to = self.resent_to.max(seq + 1);
    }

    /// Returns true if packets wait in a queue on the path: the round trip is far longer than the shortest,
    /// and than what a software peer may be busy.
    pub(crate) fn is_rtt_inflated(&self) -> bool {
        self.rtt.is_inflated()
    }

    /// The peer responded that it has no receive: the probe timeouts before were not in a row.
    pub(crate) fn on_rnr_nak(&mut self) {
        self.expiries = 0;
    }

    /// Everything from `missing` on is sent again, which is the first packet or the responses to it
    /// (`has_data`), where `position` was to be sent next.
    pub(crate) fn on_retransmit(
        &mut self,
        cause: RetransmitCause,
        missing: Range<u64>,
        has_data: bool,
        position: SendPosition,
        now: Instant,
    ) {
        self.repaired_at = now;
        self.resent = if has_data { 1 } else { FIRST_RESENT };
        self.repair_end = missing.end;
        let is_nak = cause == RetransmitCause::SequenceNak;
        let is_alone = matches!(self.state, State::Open | State::ProbeSent);
        self.is_first_nak = is_nak && is_alone && self.resent_to <= missing.end;
        if !matches!(self.state, State::PtoGoBackN | State::NakGoBackN | State::Repair) {
            self.undo_to = position;
        }
        self.resent_to = self.resent_to.max(position.0).max(self.undo_to.0);
        self.state = match cause {
            // Nothing was lost.
            RetransmitCause::RnrTimeout => State::Open,
            RetransmitCause::ProbeTimeout => State::PtoGoBackN,
            RetransmitCause::SequenceNak => State::NakGoBackN,
            _ => State::GoBackN,
        };
        // A probe timeout may be too early. If the round trip were not measured then, it would
        // stay too early.
        if cause != RetransmitCause::ProbeTimeout {
            self.rtt.on_resent(missing.start, now);
        }
    }

    /// Returns true if no loss is known.
    pub(crate) fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// Takes the probe that is to be sent: the oldest packet in flight, or the last one. `has_both`: they
    /// differ.
    pub(super) fn take_probe(&mut self, has_both: bool) -> Option<Probe> {
        let (state, probe) = match self.state {
            State::ProbePending if has_both && self.rtt.is_known() && self.peer_keeps() => {
                (State::LastProbePending, Probe::Oldest)
            }
            State::ProbePending | State::LastProbePending => (State::ProbeSent, Probe::Last),
            _ => return None,
        };
        self.state = state;
        Some(probe)
    }

    /// Returns true if this response shows that the probe timeout was due to a loss: the peer has
    /// nothing beyond what was just sent again.
    pub(crate) fn confirms_loss(&self, to: u64, next: u64, max_sent: u64) -> bool {
        self.state == State::PtoGoBackN && to <= next && to < max_sent
    }

    /// Returns the position to resume if an ACK from `unacked` up to `to` shows that less is missing
    /// than is sent again: a probe timeout was too early, or the peer keeps packets.
    pub(crate) fn undo_retransmission(
        &mut self,
        unacked: u64,
        to: u64,
        next: u64,
        now: Instant,
    ) -> Option<SendPosition> {
        // Then the packet that was missing has arrived by itself.
        let is_early = !self.rtt.may_respond_to(self.repaired_at, now);
        let is_undone = match self.state {
            State::PtoGoBackN => to > next,
            State::NakGoBackN => self.peer_keeps() && (to > next || (is_early && to > unacked + 1)),
            State::Repair => to >= self.repair_end,
            _ => false,
        };
        if !is_undone || to > self.undo_to.0 {
            return None;
        }
        self.state = State::Open;
        Some(self.undo_to)
    }

    /// Returns the position to resume if the peer has executed what is before `to`, and keeps packets:
    /// after a NAK only what is before `next` was sent again, just now.
    pub(crate) fn undo_nak(&mut self, to: u64, next: u64, now: Instant) -> Option<SendPosition> {
        let is_early = !self.rtt.may_respond_to(self.repaired_at, now);
        let is_undone = to > next || (is_early && to > self.repair_end);
        let is_undone = is_undone && self.peer_keeps();
        if self.state != State::NakGoBackN || !is_undone || to > self.undo_to.0 {
            return None;
        }
        self.state = State::Open;
        Some(self.undo_to)
    }

    /// Returns true if the probe is to be sent.
    pub(crate) fn is_probe_pending(&self) -> bool {
        matches!(self.state, State::ProbePending | State::LastProbePending)
    }

    pub(crate) fn is_retransmitting(&self) -> bool {
        matches!(self.state, State::GoBackN | State::NakGoBackN | State::PtoGoBackN | State::Repair)
    }
}

impl Requester {
    /// Packets that may be in flight now.
    pub(crate) fn effective_window(&self) -> u32 {
        match self.recovery.state {
            State::Repair => (self.recovery.repair_end.saturating_sub(self.unacked)) as u32, // at most `MAX_REPAIR`
            State::NakGoBackN => self.window.size().min(self.recovery.resent),
            State::Selective => self.selective_window(),
            _ if self.recovery.is_retransmitting() => self.window.min(),
            _ => self.window.size(),
        }
    }

    /// Sends the oldest `len` packets again, and then what follows those that are in flight.
    pub(crate) fn repair<O: Observer>(
        &mut self,
        len: u32,
        qp: &QpContext,
        timers: &mut Timers,
        cx: &mut Context<'_, O>,
    ) {
        cx.counters().selective_repeat += 1;
        self.frames.on_repair(self.unacked, &mut cx.feedback);
        self.recovery.begin_repair(self.unacked, len, (self.next, self.current_wqe), cx.time);
        self.next = self.unacked;
        self.current_wqe = self.queue.head();
        self.since_ack_req = 0;
        self.nak_action = NakAction::Ignore;
        timers.stop(Timer::Probe);
        self.keep_timed(qp, timers, cx.time);
        let (psn, cause) = (self.psn(self.unacked), RetransmitCause::SequenceNak);
        cx.out.observer.retransmit(cx.now, cx.qpn, psn, cause);
    }

    /// Goes back to new packets once the repair is sent.
    pub(crate) fn resume_after_repair(&mut self) {
        if let Some(position) = self.recovery.end_repair(self.next) {
            (self.next, self.current_wqe) = position;
        }
    }
}
