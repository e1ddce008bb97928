//! Selective repeat: gaps of which it is known where they end are repaired alone.
//!
//! A repair sends the packets of a SEND or WRITE again, and requests exactly the missing part of a READ:
//! a responder takes a repeated READ for a part of an earlier one. It moves neither the window nor what
//! is sent next.

use core::ops::Range;

use roce_wire::RnrTimer;

use crate::context::Context;
use crate::qp::context::QpContext;
use crate::rc::completer::gaps::Gaps;
use crate::rc::reorder_buffer::ReorderBuffer;
use crate::rc::requester::Requester;
use crate::rc::requester::ack_request::AckPolicy;
use crate::rc::requester::transmit::Step;
use crate::timers::{Timer, Timers};
use crate::train::TrainWriter;
use crate::transfer::GatherCopy;
use crate::{Memory, MemoryFault, Observer, RetransmitCause, SendOperation};

/// Maximum windows of packets that have arrived behind a gap while more are sent.
const MAX_WINDOWS_AHEAD: u32 = 3;

/// Windows of packets that reports may repair while the oldest missing packet is the same.
const MAX_WINDOWS_REPAIRED: u64 = 2;
/// The smallest train of new packets while gaps are known is this part of the window.
const TRAINS_PER_WINDOW: u32 = 64;

/// What a requester knows of gaps, of requests at the peer and of responses here.
#[derive(Debug, Default)]
pub(crate) struct KnownGaps {
    pub(crate) gaps: Gaps,
    /// Responses behind a missing one.
    pub(crate) early: ReorderBuffer,
    /// The peer has executed everything before it, as a response behind a missing one shows.
    pub(crate) executed_to: u64,
    /// First sequence number behind the newest packet that the peer reports.
    pub(crate) reported_to: u64,
    /// Packets repaired since the oldest missing packet is the same.
    pub(crate) repaired: u64,
    /// Packet that the peer reports missing, while responses before it are missing.
    pub(crate) nak: Option<u64>,
    /// Packet for which the peer has no receive, while responses before it are missing, and the wait
    /// that it asks for.
    pub(crate) rnr_nak: Option<(u64, RnrTimer)>,
}

impl Requester {
    /// What is known of gaps, made if nothing was.
    pub(crate) fn known(&mut self) -> &mut KnownGaps {
        self.known.get_or_insert_default()
    }

    /// The gaps are sent again otherwise. Responses stay.
    pub(crate) fn forget_gaps(&mut self) {
        if let Some(known) = &mut self.known {
            known.gaps.clear();
            known.nak = None;
            known.rnr_nak = None;
        }
    }

    /// Of the sequence numbers in `span` those in `missing` are missing.
    pub(crate) fn note_gaps<O: Observer>(
        &mut self,
        span: Range<u64>,
        missing: impl IntoIterator<Item = Range<u64>>,
        timers: &mut Timers,
        cx: &Context<'_, O>,
    ) {
        let timing = self.recovery.gap_timing();
        let gaps = &mut self.known().gaps;
        let late = gaps.update(span, missing, timing, cx.time);
        let has_gaps = !gaps.is_empty();
        if let Some(late) = late {
            self.recovery.note_lateness(late);
        }
        self.recovery.set_selective(has_gaps);
        self.arm_gap_timer(timers);
    }

    /// Packets that may be in flight or have arrived behind a gap: the latter need no room in the window.
    /// As long as little of it is free nothing new is sent, since each train would draw a report of its own.
    #[cold]
    pub(super) fn selective_window(&self) -> u32 {
        let size = self.window.size();
        let Some(known) = &self.known else { return size };
        let end = known.executed_to.max(known.reported_to).max(self.unacked);
        let arrived = (end - self.unacked).saturating_sub(known.gaps.packets());
        let arrived = u32::try_from(arrived).unwrap_or(u32::MAX).min(MAX_WINDOWS_AHEAD * size);
        let sent = (self.next - self.unacked) as u32; // below half the circle
        let is_worth_while = size + arrived >= sent + size / TRAINS_PER_WINDOW;
        if is_worth_while { size + arrived } else { (size + arrived).min(sent) }
    }

    /// Returns true if reports have repaired enough: a peer that contradicts itself gets nothing more.
    pub(super) fn has_repaired_enough(&self) -> bool {
        let most = MAX_WINDOWS_REPAIRED * u64::from(self.window.size());
        self.known.as_ref().is_some_and(|known| known.repaired > most)
    }

    /// Everything before `to` has arrived.
    pub(crate) fn settle_gaps<O: Observer>(
        &mut self,
        to: u64,
        timers: &mut Timers,
        cx: &Context<'_, O>,
    ) {
        if self.recovery.is_selective() {
            self.known().repaired = 0;
            self.note_gaps(0..to, [], timers, cx);
        }
    }

    /// Returns true if gaps are to be repaired now.
    pub(crate) fn has_repairs(&self) -> bool {
        self.recovery.is_selective() && self.next_repair(0).is_some()
    }

    /// Returns true if a packet that was sent before is to be sent now.
    pub(crate) fn has_to_repeat(&self) -> bool {
        !self.recovery.is_open() && (self.recovery.is_probe_pending() || self.has_repairs())
    }

    /// Lets the gaps be due that have waited long enough. Returns true if one can be repaired now.
    pub(super) fn expire_gaps(&mut self, now: crate::Instant) -> bool {
        if let Some(known) = &mut self.known {
            known.gaps.expire(now);
        }
        self.has_repairs()
    }

    /// Arms the probe timer for the next gap that is due, if that is earlier.
    pub(super) fn arm_gap_timer(&self, timers: &mut Timers) {
        if let Some(known) = self.known.as_ref().filter(|_| self.recovery.is_selective())
            && let Some(at) = known.gaps.next_due_at()
            && timers.at(Timer::Probe).is_none_or(|probe| at < probe)
        {
            timers.arm(Timer::Probe, at);
        }
    }

    /// Writes a train of packets that were sent before: the probe, or repairs. The peer window counts neither:
    /// a repair takes the place of what was lost.
    #[cold]
    #[inline(never)]
    pub(crate) fn repeat<M: Memory, O: Observer>(
        &mut self,
        qp: &QpContext,
        timers: &mut Timers,
        memory: &mut M,
        train: &mut TrainWriter<'_>,
        cx: &mut Context<'_, O>,
    ) {
        let is_probe = self.write_probe(qp, memory, train, cx);
        let may_repair = !is_probe && self.has_repairs() && !self.in_rnr_wait;
        if may_repair && !self.is_paced(cx.time) {
            self.write_repairs(qp, timers, memory, train, cx);
        }
        if !train.is_empty() {
            self.keep_timed(qp, timers, cx.time);
        }
    }

    /// Writes the repairs that are due and fit into the train. Goes back N if a packet cannot be written.
    fn write_repairs<M: Memory, O: Observer>(
        &mut self,
        qp: &QpContext,
        timers: &mut Timers,
        memory: &mut M,
        train: &mut TrainWriter<'_>,
        cx: &mut Context<'_, O>,
    ) {
        let mut from = 0;
        while let Some(gap) = self.next_repair(from) {
            from = gap.end;
            let Ok(end) = self.write_repair(gap.clone(), qp, memory, train) else {
                let cause = RetransmitCause::SequenceNak;
                // Costs no retry, so none can be missing. It finds out why.
                let _done = self.go_back_n(cause, false, qp, timers, cx).is_ok();
                return;
            };
            if end > gap.start {
                let is_response = self.reads.find(gap.start).is_some();
                self.on_repaired(gap.start..end, is_response, cx);
            }
            if end < gap.end {
                return;
            }
        }
    }

    /// Returns the first gap from `from` on that is due and may be repaired.
    fn next_repair(&self, mut from: u64) -> Option<Range<u64>> {
        loop {
            let gap = self.known.as_ref()?.gaps.next_due(from)?;
            if self.may_repair(gap.start) {
                return Some(gap);
            }
            from = gap.end;
        }
    }

    /// Returns true if the peer has executed packet `seq`, which is part of a gap: the response is missing.
    fn is_executed(&self, seq: u64) -> bool {
        self.known.as_ref().is_some_and(|known| seq < known.executed_to)
    }

    /// Returns false for a gap of a READ that has an earlier one: rxe drops a repeated request that begins
    /// before the latest. Peers that keep packets take parts in any order.
    fn may_repair(&self, start: u64) -> bool {
        let request = self.reads.find(start).filter(|_| !self.recovery.peer_keeps());
        let begins_in = |span| self.known.as_ref().is_some_and(|it| it.gaps.begins_in(span));
        request.is_none_or(|request| !begins_in(request.start..start))
    }

    /// Writes what fits of `gap`; returns where the rest begins.
    fn write_repair<M: Memory>(
        &mut self,
        gap: Range<u64>,
        qp: &QpContext,
        memory: &M,
        train: &mut TrainWriter<'_>,
    ) -> Result<u64, MemoryFault> {
        let mut seq = gap.start;
        let (gather, acks) = (&mut GatherCopy::new(), &mut AckPolicy::ALWAYS.clone());
        while seq < gap.end {
            let Some(entry) = self.queue.containing(seq) else { break };
            let request = self.reads.find(seq);
            seq = match (entry.work.operation, request) {
                (SendOperation::Read { remote }, Some(request)) => {
                    // What is not executed yet is requested as it was: a part would be a request more.
                    let span = match self.is_executed(seq) {
                        true => seq..gap.end.min(request.end),
                        false => request.start..request.end,
                    };
                    let end = span.end;
                    let written =
                        self.write_read_request(entry, remote, span, qp, memory, acks, train)?;
                    if written.is_none() {
                        break;
                    }
                    if end < request.end {
                        self.reads.note_split(seq);
                    }
                    end
                }
                (operation, Some(_)) if operation.is_atomic() => {
                    if !self.write_atomic_request(entry, seq, qp, memory, acks, train)? {
                        break;
                    }
                    seq + 1
                }
                _ => match self.write_data(entry, seq, qp, memory, gather, acks, train)? {
                    Step::Sent(_) => seq + 1,
                    _ => break,
                },
            };
        }
        Ok(seq)
    }

    fn on_repaired<O: Observer>(
        &mut self,
        span: Range<u64>,
        is_response: bool,
        cx: &mut Context<'_, O>,
    ) {
        let cause = match is_response {
            true => RetransmitCause::ImpliedNak,
            false => RetransmitCause::SequenceNak,
        };
        let lost = span.end - span.start;
        let packets = if is_response { 1 } else { lost };
        cx.counters().selective_repeat += 1;
        cx.counters().resent_pkts += packets;
        cx.out.observer.retransmit(cx.now, cx.qpn, self.psn(span.start), cause);
        self.recovery.on_gap_repaired(&span, is_response);
        let sent_to = self.max_sent;
        let known = self.known();
        known.repaired += lost;
        known.gaps.on_repaired(span, sent_to, cx.time);
        cx.feedback.is_alive = true;
        self.react_to_loss(lost, cx);
    }
}
