//! Writes packets that were sent before while others are in flight: probes, and the repairs of gaps.
//!
//! A repair sends the packets of a SEND or WRITE again, and requests exactly the missing part of a READ:
//! a responder takes a repeated READ for a part of an earlier one. It moves neither the window nor what
//! is sent next.

use core::ops::Range;

use super::Requester;
use super::ack_request::AckPolicy;
use super::packets::{RequestWriter, Written};
use crate::context::Context;
use crate::qp::context::QpContext;
use crate::rc::loss_recovery::{Action, Probe};
use crate::timers::Timers;
use crate::train::TrainWriter;
use crate::transfer::GatherCopy;
use crate::{Memory, MemoryFault, Observer, RetransmitCause, SendOperation};

impl Requester {
    /// Writes a train of packets that were sent before: the probe, or repairs. The peer window
    /// counts neither: a repair takes the place of what was lost.
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
        let may_repair = !is_probe && self.has_repairs() && !self.recovery.is_in_rnr_wait();
        if may_repair && !self.limit.is_paced(self.send.next(), cx.time) {
            self.write_repairs(qp, timers, memory, train, cx);
        }
        if !train.is_empty() {
            self.keep_timed(qp, timers, cx.time);
        }
    }

    /// Writes the probe that is due; returns false where there is none, or it cannot be written.
    fn write_probe<M: Memory, O: Observer>(
        &mut self,
        qp: &QpContext,
        memory: &M,
        train: &mut TrainWriter<'_>,
        cx: &mut Context<'_, O>,
    ) -> bool {
        let Self { send, recovery, .. } = self;
        let last = send.last_in_flight();
        let has_both = last.is_some_and(|it| it.seq > send.unacked());
        let Some(probe) = recovery.take_probe(has_both) else { return false };
        let position = if probe == Probe::Last { last } else { Some(send.oldest()) };
        let Some(position) = position else { return false };
        let Some(entry) = send.get(position.entry) else { return false };
        let seq = position.seq;
        let (gather, acks) = (&mut GatherCopy::new(), &mut AckPolicy::ALWAYS.clone());
        let written = RequestWriter { send, qp, memory }.data(entry, seq, gather, acks, train);
        // Where it cannot be written, go-back-N finds out why.
        let Ok(Written::Sent(_)) = written else { return false };
        // The round trip is still measured from the first transmission: after a loss the next
        // timeout is too long rather than too short.
        send.set_since_ack_req(0);
        recovery.on_probe(seq);
        cx.counters().tail_probe += u64::from(probe == Probe::Last);
        cx.counters().resent_pkts += 1;
        cx.out.observer.retransmit(cx.now, cx.qpn, send.psn(seq), RetransmitCause::TailProbe);
        true
    }

    /// Writes the repairs that are due and fit into the train. Goes back N if a packet cannot be written.
    fn write_repairs<M: Memory, O: Observer>(
        &mut self,
        qp: &QpContext,
        timers: &mut Timers,
        memory: &M,
        train: &mut TrainWriter<'_>,
        cx: &mut Context<'_, O>,
    ) {
        let mut from = 0;
        while let Some(gap) = self.recovery.next_gap_due(from, self.send.reads()) {
            from = gap.end;
            let Ok(end) = self.write_repair(gap.clone(), qp, memory, train) else {
                // It finds out why.
                let action =
                    Action::GoBack { cause: RetransmitCause::SequenceNak, has_cost: false };
                let _done = self.perform(action, qp, timers, cx).is_ok();
                return;
            };
            if end > gap.start {
                self.on_gap_repaired(gap.start..end, cx);
            }
            if end < gap.end {
                return;
            }
        }
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
            let writer = RequestWriter { send: &self.send, qp, memory };
            let Some(entry) = self.send.containing(seq) else { break };
            let request = self.send.reads().find(seq);
            seq = match (entry.work.operation, request) {
                (SendOperation::Read { remote }, Some(request)) => {
                    // What is not executed yet is requested as it was: a part would be a request more.
                    let span = match self.recovery.is_executed(seq) {
                        true => seq..gap.end.min(request.end),
                        false => request.start..request.end,
                    };
                    let end = span.end;
                    if writer.read_request(entry, remote, span, acks, train)?.is_none() {
                        break;
                    }
                    if end < request.end {
                        self.send.note_split(seq);
                    }
                    end
                }
                (operation, Some(_)) if operation.is_single_request() => {
                    if !writer.repeat_single_request(entry, seq, acks, train)? {
                        break;
                    }
                    seq + 1
                }
                _ => match writer.data(entry, seq, gather, acks, train)? {
                    Written::Sent(_) => seq + 1,
                    _ => break,
                },
            };
        }
        Ok(seq)
    }

    fn on_gap_repaired<O: Observer>(&mut self, span: Range<u64>, cx: &mut Context<'_, O>) {
        let Self { send, recovery, limit, .. } = self;
        let is_response = send.reads().find(span.start).is_some();
        let cause = match is_response {
            true => RetransmitCause::ImpliedNak,
            false => RetransmitCause::SequenceNak,
        };
        let lost = span.end - span.start;
        cx.counters().selective_repeat += 1;
        cx.counters().resent_pkts += if is_response { 1 } else { lost };
        cx.out.observer.retransmit(cx.now, cx.qpn, send.psn(span.start), cause);
        recovery.on_gap_repaired(span, is_response, send.max_sent(), cx.time);
        cx.feedback.is_alive = true;
        limit.on_repaired(lost, recovery.is_rtt_inflated(), send, cx);
    }
}
