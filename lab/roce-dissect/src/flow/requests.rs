//! Requests of one direction and their state.

mod behind;
mod count;
mod message;
mod pending;
mod responses;

use std::collections::VecDeque;

use roce_wire::{GapReport, Headers, Opcode, OpcodeInfo, Operation, PathMtu, Psn, Service};

use self::behind::Behind;
use self::count::MessageCount;
use self::message::{Open, check_payload};
use self::pending::{Kind, Pending};
use super::histogram::Histogram;
use crate::{Finding, RawFrame, Roce, Timestamp};

/// State of the responder as captured, and the outstanding requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Requests {
    pub(crate) mtu: Option<u16>,
    expected: Expected,
    /// PSN after the last one sent.
    pub(crate) sent: Psn,
    /// Oldest unacknowledged PSN.
    pub(crate) unacked: Psn,
    /// The current gap was reported.
    gap_reported: bool,
    open: Open,
    pub(crate) pending: VecDeque<Pending>,
    pub(crate) round_trips: Option<Histogram>,
    /// Messages whose last packet the responder accepted.
    pub(crate) messages: u64,
    /// Payload bytes that the responder accepted, each once.
    pub(crate) good_bytes: u64,
    behind: Behind,
    /// The capture has the first request: connection management named its PSN.
    pub(crate) has_first: bool,
    /// The responder has requests that the capture lacks.
    pub(crate) has_missed: bool,
    count: MessageCount,
}

/// PSN that the responder expects next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Expected {
    #[default]
    Unknown,
    Psn(Psn),
    /// After a READ whose response takes an unknown number of PSNs, as the path MTU is unknown.
    AfterRead {
        first: Psn,
        len: u32,
    },
}

impl Requests {
    pub(crate) fn expected(&self) -> Option<Psn> {
        match self.expected {
            Expected::Psn(psn) => Some(psn),
            _ => None,
        }
    }

    pub(crate) const fn open_opcode(&self) -> Option<Opcode> {
        self.open.opcode()
    }

    pub(crate) const fn gap_reported(&self) -> bool {
        self.gap_reported
    }

    /// Returns the number of packets from the expected one on that were captured already.
    pub(crate) const fn seen_ahead(&self) -> u32 {
        self.behind.leading()
    }

    /// Returns true if a request was captured.
    pub(crate) fn is_known(&self) -> bool {
        self.expected != Expected::Unknown
    }

    /// Sets the first PSN, from connection management.
    pub(crate) fn begin_at(&mut self, psn: Psn, mtu: Option<PathMtu>) {
        if self.is_known() {
            return;
        }
        self.expected = Expected::Psn(psn);
        (self.sent, self.unacked) = (psn, psn);
        self.open = Open::None;
        self.mtu = mtu.map(|mtu| mtu.bytes() as u16).or(self.mtu);
        self.has_first = true;
        self.count.begin();
    }

    /// Returns true if a response with `psn` matches an outstanding request.
    pub(crate) fn may_match_response(&self, psn: Psn) -> bool {
        self.is_known() && psn.distance_from(self.unacked) >= 0 && psn.distance_from(self.sent) < 0
    }

    /// Handles a request. Returns true if it was sent before.
    pub(crate) fn request(
        &mut self,
        frame: &RawFrame<'_>,
        roce: &Roce<'_>,
        headers: &Headers,
        findings: &mut Vec<Finding>,
    ) -> bool {
        let (psn, info) = (headers.bth.psn, headers.bth.opcode.info());
        self.settle(psn, findings);
        let Expected::Psn(expected) = self.expected else { return false };
        let distance = psn.distance_from(expected);
        let sent_before = psn.distance_from(self.sent) < 0;
        let is_ahead = u32::try_from(distance).is_ok_and(|ahead| ahead > self.behind.leading());
        if is_ahead {
            self.note_gap(expected, distance as u32, findings);
            if sent_before {
                findings.push(Finding::Retransmission);
            } else {
                self.sent = psn.advanced_by(self.span(headers).unwrap_or(1));
            }
            if info.service == Service::Uc {
                self.resume_unreliable(psn, info, findings);
                self.accept(frame, roce, headers, findings);
                return false;
            }
            self.note_behind(frame, roce, headers, distance as u32);
            return sent_before;
        }
        if distance < 0 {
            findings.push(Finding::Duplicate { behind: distance.unsigned_abs() });
            self.handle_duplicate(frame, headers);
            return true;
        }
        if distance > 0 {
            // The requester goes on behind packets that it has sent: the responder kept them. If
            // not, a NAK follows.
            self.skip(distance as u32);
        }
        if sent_before {
            findings.push(Finding::Retransmission);
            self.pending.retain(|pending| pending.first != psn || !pending.has_data_response());
            for pending in self.pending.iter_mut().filter(|pending| pending.covers(psn)) {
                pending.clean = false;
            }
        }
        self.accept(frame, roce, headers, findings);
        sent_before
    }

    /// Notes a packet behind a gap, which the responder keeps or drops.
    fn note_behind(
        &mut self,
        frame: &RawFrame<'_>,
        roce: &Roce<'_>,
        headers: &Headers,
        ahead: u32,
    ) {
        let (psn, info) = (headers.bth.psn, headers.bth.opcode.info());
        let span = self.span(headers);
        let ends = info.position.is_last() || !info.carries_payload();
        self.behind.insert(ahead, span.unwrap_or(1), roce.payload_len, ends);
        // If it is kept, its response comes without a second request.
        if Kind::of(headers).is_some_and(|kind| kind.has_data_response()) {
            self.pending.retain(|pending| pending.first != psn || !pending.has_data_response());
            self.note_pending(frame, headers, span);
            if let Some(last) = self.pending.back_mut() {
                last.clean = false;
                last.messages = None;
            }
        }
    }

    /// Moves the expected PSN over `packets` that the responder has.
    fn skip(&mut self, packets: u32) {
        let Expected::Psn(expected) = self.expected else { return };
        let taken = self.behind.take(packets);
        self.expected = Expected::Psn(expected.advanced_by(packets));
        self.good_bytes += taken.bytes;
        self.messages += u64::from(taken.messages);
        for _ in 0..taken.messages {
            self.count.add();
        }
        if taken.is_uncertain || taken.has_missed {
            self.forget_count();
        }
        self.has_missed |= taken.has_missed;
        self.gap_reported = false;
        self.open = if taken.ends { Open::None } else { Open::Unknown };
    }

    /// Notes that the responder has executed all requests before `next`.
    fn note_executed(&mut self, next: Psn) {
        if let Expected::Psn(expected) = self.expected
            && let Ok(packets @ 1..) = u32::try_from(next.distance_from(expected))
        {
            self.skip(packets);
        }
    }

    /// Notes that the responder waits for `psn` and has all before it.
    fn note_expected(&mut self, psn: Psn) {
        let distance = self.expected().map(|expected| psn.distance_from(expected));
        match distance {
            Some(0) => self.behind.mark_missing(0, 1),
            Some(1..) => {
                self.note_executed(psn);
                self.behind.mark_missing(0, 1);
            }
            Some(_) => {
                self.behind.go_back(distance.map_or(0, i32::unsigned_abs));
                self.open = Open::Unknown;
                self.forget_count();
            }
            None => {
                self.behind.clear();
                self.open = Open::Unknown;
                self.forget_count();
            }
        }
        self.expected = Expected::Psn(psn);
        self.gap_reported = true;
    }

    /// Handles a report of gaps at the responder, of which the first begins at `psn`.
    //= also rc-psn-order
    pub(crate) fn note_gap_report(&mut self, psn: Psn, report: GapReport<'_>, time: Timestamp) {
        let end = psn.advanced_by(report.packets());
        let is_current = psn.distance_from(self.unacked) >= 0 && end.distance_from(self.sent) <= 0;
        if !self.is_known() || !is_current {
            return;
        }
        self.refuse(psn, time);
        let mut ahead = 0;
        for run in report.runs() {
            self.behind.mark_missing(ahead, run.missing.into());
            ahead += u32::from(run.missing) + u32::from(run.kept);
        }
    }

    /// Determines the expected PSN if it is unknown.
    fn settle(&mut self, psn: Psn, findings: &mut Vec<Finding>) {
        match self.expected {
            Expected::Unknown => {
                findings.push(Finding::Joined);
                self.restart(psn);
            }
            Expected::AfterRead { first, len } => {
                let fits = |mtu: &PathMtu| {
                    first.advanced_by(len.div_ceil(mtu.bytes() as u32).max(1)) == psn
                };
                let distance = psn.distance_from(first);
                if let Some(mtu) = PathMtu::ALL.iter().find(|mtu| fits(mtu)) {
                    self.mtu = Some(mtu.bytes() as u16);
                    self.expected = Expected::Psn(psn);
                } else {
                    let next = if distance <= 0 { first.advanced_by(1) } else { psn };
                    self.expected = Expected::Psn(next);
                    self.forget_count();
                }
                self.sent = later(self.sent, psn);
            }
            Expected::Psn(expected) => {
                // A PSN so far away belongs to a new queue pair of the same number.
                let distance = psn.distance_from(expected).unsigned_abs();
                if distance > MAX_GAP {
                    findings.push(Finding::Joined);
                    self.restart(psn);
                }
            }
        }
    }

    fn restart(&mut self, psn: Psn) {
        self.expected = Expected::Psn(psn);
        (self.sent, self.unacked) = (psn, psn);
        self.open = Open::Unknown;
        self.gap_reported = false;
        self.pending.clear();
        self.behind.clear();
        (self.has_first, self.has_missed) = (false, false);
        self.count = MessageCount::default();
    }

    /// Discards the message count after a gap in the capture.
    fn forget_count(&mut self) {
        self.count = MessageCount::default();
        for pending in &mut self.pending {
            pending.messages = None;
        }
    }

    /// Adds the finding for a packet `ahead` of the expected one.
    fn note_gap(&mut self, expected: Psn, ahead: u32, findings: &mut Vec<Finding>) {
        let first = expected.advanced_by(self.behind.leading());
        findings.push(match self.gap_reported {
            false => Finding::Gap { expected: first, missing: self.behind.missing(ahead) },
            true => Finding::BehindGap { expected: first },
        });
        self.gap_reported = true;
    }

    /// Continues an unreliable connection after a gap, which loses the current message.
    //= also uc-gap
    fn resume_unreliable(&mut self, psn: Psn, info: OpcodeInfo, findings: &mut Vec<Finding>) {
        if !info.position.is_first() || matches!(self.open, Open::Message(_)) {
            findings.push(Finding::MessageLost);
        }
        self.open = if info.position.is_first() { Open::None } else { Open::Unknown };
        self.expected = Expected::Psn(psn);
        self.gap_reported = false;
    }

    /// Accepts the expected packet.
    fn accept(
        &mut self,
        frame: &RawFrame<'_>,
        roce: &Roce<'_>,
        headers: &Headers,
        findings: &mut Vec<Finding>,
    ) {
        let (psn, opcode) = (headers.bth.psn, headers.bth.opcode);
        let info = opcode.info();
        self.gap_reported = false;
        let before = self.open_opcode();
        let in_sequence = match self.open {
            Open::Unknown => true,
            _ => info.may_follow(before.and_then(Opcode::info)),
        };
        //= also rc-opcode-order
        if !in_sequence {
            findings.push(Finding::OpcodeSequence { before });
        }
        let bytes = roce.payload_len as u64;
        let ends = if info.carries_payload() {
            check_payload(&mut self.mtu, info.position, roce.payload_len, findings);
            self.open.grow(frame, headers, bytes, findings)
        } else {
            self.open = Open::None;
            true
        };
        if ends {
            self.count.add();
        }
        // One that a NAK asked for again was counted when it was first seen.
        if !self.behind.is_counted() {
            self.messages += u64::from(ends);
            self.good_bytes += bytes;
        }
        let span = self.span(headers);
        match span {
            Some(span) => drop(self.behind.take(span)),
            None => self.behind.clear(),
        }
        self.note_pending(frame, headers, span);
        self.expected = match (span, headers.reth) {
            (Some(span), _) => Expected::Psn(psn.advanced_by(span)),
            (None, reth) => Expected::AfterRead { first: psn, len: reth.map_or(0, |r| r.len) },
        };
        self.sent = later(self.sent, psn.advanced_by(span.unwrap_or(1)));
    }

    /// Returns the number of PSNs of a request; `None` for a READ of unknown path MTU.
    fn span(&self, headers: &Headers) -> Option<u32> {
        match (headers.bth.opcode.info().operation, headers.reth) {
            (Operation::ReadRequest, Some(reth)) => match self.mtu {
                Some(mtu) => Some(reth.len.div_ceil(mtu.into()).max(1)),
                None => (reth.len <= 256).then_some(1),
            },
            _ => Some(1),
        }
    }

    fn note_pending(&mut self, frame: &RawFrame<'_>, headers: &Headers, packets: Option<u32>) {
        let Some(kind) = Kind::of(headers) else { return };
        if self.pending.len() == MAX_PENDING {
            self.pending.pop_front();
        }
        let first = headers.bth.psn;
        let clean = first.distance_from(self.sent) >= 0 || self.sent == first;
        let messages = match kind {
            // Some responders count a READ on arrival, others with its last response.
            Kind::Read { .. } => self.count.seen_before(1),
            _ => self.count.seen_before(0),
        };
        let (number, time, messages) = (frame.number, frame.time, Some(messages));
        self.pending.push_back(Pending { first, packets, number, time, clean, messages, kind });
    }

    /// Handles a repeated request. A READ may be repeated from a later PSN.
    fn handle_duplicate(&mut self, frame: &RawFrame<'_>, headers: &Headers) {
        let psn = headers.bth.psn;
        for pending in self.pending.iter_mut().filter(|pending| pending.covers(psn)) {
            pending.clean = false;
        }
        let responds_again = matches!(
            headers.bth.opcode.info().operation,
            Operation::ReadRequest
                | Operation::CompareSwap
                | Operation::FetchAdd
                | Operation::Flush
                | Operation::AtomicWrite
        );
        if responds_again {
            self.pending.retain(|pending| pending.first != psn || !pending.has_data_response());
            let span = self.span(headers);
            self.note_pending(frame, headers, span);
            if let Some(last) = self.pending.back_mut() {
                last.clean = false;
                last.messages = None;
            }
        }
    }
}

fn later(a: Psn, b: Psn) -> Psn {
    if b.distance_from(a) > 0 { b } else { a }
}

/// Maximum number of outstanding requests kept.
const MAX_PENDING: usize = 128;

/// Maximum distance of a gap in PSNs; no send window is larger.
const MAX_GAP: u32 = 1 << 18;
