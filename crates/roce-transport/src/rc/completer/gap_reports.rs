//! Gap reports of the peer.
//!
//! A responder that keeps packets acknowledges none behind a gap, and its NAK names one packet. Its
//! reports name all gaps, so each is repaired in the round trip in which it is noticed, and what is
//! kept no longer counts as in flight. They go beside ACKs and NAKs, between queue pairs that have
//! agreed on them when they were connected (`QpAttributes::gap_reports`).

use alloc::vec;

use roce_wire::{GapReport, Psn};

use super::{Completer, IncomingResponse};
use crate::Observer;
use crate::context::{Context, DropReason};
use crate::qp::context::QpContext;
use crate::rc::requester::Requester;
use crate::timers::{Timer, Timers};

impl Completer {
    /// Handles a report of gaps at the peer, of which the first begins at `psn`.
    pub(crate) fn handle_gap_report<O: Observer>(
        &mut self,
        requester: &mut Requester,
        qp: &QpContext,
        timers: &mut Timers,
        psn: Psn,
        report: GapReport<'_>,
        cx: &mut Context<'_, O>,
    ) {
        let send = requester.send();
        let reach = send.outstanding(psn).map(|seq| (seq, seq + u64::from(report.packets())));
        let Some((seq, end)) = reach.filter(|(_, end)| *end <= send.max_sent()) else {
            return cx.dropped(psn, DropReason::GapReportIgnored);
        };
        if !requester.recovery().peer_reports() {
            return cx.dropped(psn, DropReason::GapReportIgnored);
        }
        cx.counters().gap_report_rcvd += 1;
        let before = send.unacked();
        let position = requester.recovery_mut().on_gap_report();
        requester.resume(position);
        let mut response = IncomingResponse { seq, psn, qp, timers, cx };
        if !response.acknowledge(requester, seq) && response.may_keep(requester) {
            self.note_executed(requester, seq, &mut response);
        }
        let IncomingResponse { timers, cx, .. } = response;
        requester.on_reported(end, cx);
        let has_progress = requester.send().unacked() > before;
        let has_enough = requester.has_repaired_enough();
        let next = requester.send().next();
        let recovery = requester.recovery_mut();
        let is_news = recovery.is_new_report(end) || has_progress;
        // What is behind `next` is about to be sent again.
        let may_repair = !recovery.is_in_rnr_wait() && !has_enough && recovery.may_be_selective();
        if !may_repair || end > next {
            return;
        }
        let (mut at, mut missing) = (seq, vec![]);
        for run in report.runs() {
            let kept = at + u64::from(run.missing);
            missing.push(at..kept);
            at = kept + u64::from(run.kept);
            recovery.on_kept_by_peer(&(kept..at), cx.time);
        }
        recovery.note_reported(end);
        recovery.note_gaps(seq..end, missing, cx.time);
        requester.arm_gap_timer(timers);
        if is_news && timers.is_armed(Timer::Probe) {
            timers.stop(Timer::Probe);
            requester.arm_probe_timer(cx.time, timers);
        }
    }
}
