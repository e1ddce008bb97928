//! What is sent again: where it begins and ends.

use core::ops::Range;

use super::LossRecovery;
use super::action::Probe;
use super::phase::{Phase, ProbeStep, RepairStep, Trigger};
use super::retries::NakHandling;
use crate::rc::send_state::{SendPosition, SendState};
use crate::{Instant, RetransmitCause};

/// Maximum packets sent again after a NAK before the peer's response shows whether it keeps those
/// behind them. Of READs and atomics it is one request.
const FIRST_RESENT: u32 = 4;

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

    /// What `span` contains, a part of a gap, was sent again behind everything before `sent_to`, or
    /// requested again if it is of responses.
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
