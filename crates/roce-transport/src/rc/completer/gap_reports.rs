//! Gap reports of the peer.
//!
//! A responder that keeps packets acknowledges none behind a gap, and its NAK names one packet. Its
//! reports name all gaps, so each is repaired in the round trip in which it is noticed, and what is kept
//! no longer counts as in flight. They go beside ACKs and NAKs, between queue pairs that have agreed on them
//! when they were connected (`QpAttributes::gap_reports`).

use roce_wire::{GapReport, Psn};

use crate::Observer;
use crate::context::{Context, DropReason};
use crate::qp::context::QpContext;
use crate::rc::completer::IncomingResponse;
use crate::rc::requester::Requester;
use crate::timers::{Timer, Timers};

impl Requester {
    /// Handles a report of gaps at the peer, of which the first begins at `psn`.
    pub(crate) fn handle_gap_report<O: Observer>(
        &mut self,
        qp: &QpContext,
        timers: &mut Timers,
        psn: Psn,
        report: GapReport<'_>,
        cx: &mut Context<'_, O>,
    ) {
        let seq = self.outstanding(psn);
        let reach = seq.map(|seq| (seq, seq + u64::from(report.packets())));
        let Some((seq, end)) = reach.filter(|(_, end)| *end <= self.max_sent) else {
            return cx.dropped(psn, DropReason::GapReportIgnored);
        };
        if !self.recovery.peer_reports() {
            return cx.dropped(psn, DropReason::GapReportIgnored);
        }
        cx.counters().gap_report_rcvd += 1;
        if let Some(position) = self.recovery.on_gap_report() {
            (self.next, self.current_wqe) = position;
        }
        let before = self.unacked;
        let mut response = IncomingResponse { seq, psn, qp, timers, cx };
        if !self.acknowledge(seq, &mut response) && self.keeps_responses(&response) {
            self.note_executed(seq, &mut response);
        }
        let IncomingResponse { timers, cx, .. } = response;
        self.frames.on_reported(end, &mut cx.feedback);
        let is_news = self.unacked > before || end > self.known().reported_to;
        // What is behind `next` is about to be sent again.
        if self.in_rnr_wait
            || self.has_repaired_enough()
            || !self.recovery.may_be_selective()
            || end > self.next
        {
            return;
        }
        let (mut at, mut missing) = (seq, vec![]);
        for run in report.runs() {
            let kept = at + u64::from(run.missing);
            missing.push(at..kept);
            at = kept + u64::from(run.kept);
            self.recovery.on_reported(&(kept..at), cx.time);
        }
        let known = self.known();
        known.reported_to = known.reported_to.max(end);
        self.note_gaps(seq..end, missing, timers, cx);
        if is_news && timers.is_armed(Timer::Probe) {
            timers.stop(Timer::Probe);
            self.arm_probe_timer(cx.time, timers);
        }
    }
}
