//! Gap reports of the peer, and the packet that asks for them.
//!
//! A responder that keeps packets acknowledges none behind a gap, and its NAK names one packet. Its
//! reports name all gaps, so each is repaired in the round trip in which it is noticed, and what is kept
//! no longer counts as in flight. A responder sends reports to requesters that have said that they take
//! them, and a requester says so to peers that were seen to keep packets: no other peer ever receives
//! such a packet.

use roce_wire::{GapReport, Psn};

use crate::Observer;
use crate::context::{Context, DropReason};
use crate::owed_notice::Notice;
use crate::qp::context::QpContext;
use crate::rc::completer::IncomingResponse;
use crate::rc::requester::Requester;
use crate::timers::{Timer, Timers};

impl Requester {
    /// Tells a peer that keeps packets that its reports are taken, unless it sends them.
    pub(crate) fn announce_gap_reports<O: Observer>(
        &mut self,
        qp: &QpContext,
        cx: &mut Context<'_, O>,
    ) {
        if cx.config.gap_reports && self.recovery.take_announcement() {
            cx.notify(Notice::TakesGapReports, qp);
        }
    }

    /// Handles a report of gaps at the peer, of which the first begins at `psn`.
    pub(crate) fn handle_gap_report<O: Observer>(
        &mut self,
        qp: &QpContext,
        timers: &mut Timers,
        psn: Psn,
        report: GapReport<'_>,
        cx: &mut Context<'_, O>,
    ) {
        let ahead = u64::try_from(psn.distance_from(self.psn(self.unacked)));
        let Ok(seq) = ahead.map(|ahead| self.unacked + ahead) else {
            return cx.dropped(psn, DropReason::GapReportIgnored);
        };
        let end = seq + u64::from(report.packets());
        if end > self.max_sent || self.in_rnr_wait || self.has_repaired_enough() {
            return cx.dropped(psn, DropReason::GapReportIgnored);
        }
        cx.counters().gap_report_rcvd += 1;
        if let Some(position) = self.recovery.on_gap_report() {
            (self.next, self.current_wqe) = position;
        }
        let before = self.unacked;
        let mut response = IncomingResponse { seq, psn, qp, timers, cx };
        if !self.acknowledge(seq, &mut response) {
            self.note_executed(seq, &mut response);
        }
        let IncomingResponse { timers, cx, .. } = response;
        self.frames.on_reported(end, &mut cx.feedback);
        let is_news = self.unacked > before || end > self.known().reported_to;
        // What is behind `next` is about to be sent again.
        if !self.recovery.may_be_selective() || end > self.next {
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
