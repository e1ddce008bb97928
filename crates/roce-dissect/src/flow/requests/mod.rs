//! Requests of one direction and their state.

mod count;
mod message;
mod pending;
mod responses;

use std::collections::VecDeque;

use roce_wire::{Headers, Opcode, OpcodeInfo, Operation, PathMtu, Psn, Service};

use self::count::MessageCount;
use self::message::{Open, check_payload};
use self::pending::{Kind, Pending};
use super::histogram::Histogram;
use crate::{Finding, RawFrame, Roce};

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
    pub(crate) messages: u64,
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

/// Result of a request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Accepted {
    /// Payload bytes that are new to the responder.
    pub(crate) bytes: u64,
    /// The packet was sent before.
    pub(crate) again: bool,
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

    /// Handles a request.
    pub(crate) fn request(
        &mut self,
        frame: &RawFrame<'_>,
        roce: &Roce<'_>,
        headers: &Headers,
        findings: &mut Vec<Finding>,
    ) -> Accepted {
        let (psn, info) = (headers.bth.psn, headers.bth.opcode.info());
        self.settle(psn, findings);
        let Expected::Psn(expected) = self.expected else { return Accepted::default() };
        let distance = psn.distance_from(expected);
        let sent_before = psn.distance_from(self.sent) < 0;
        if distance > 0 {
            self.note_gap(expected, distance as u32, findings);
            if sent_before {
                findings.push(Finding::Retransmission);
            } else {
                self.sent = psn.advanced_by(self.span(headers).unwrap_or(1));
            }
            if info.service == Service::Uc {
                self.resume_unreliable(psn, info, findings);
                let bytes = self.accept(frame, roce, headers, findings);
                return Accepted { bytes, again: false };
            }
            // The responder drops it; the requester has to retransmit it.
            return Accepted { bytes: 0, again: sent_before };
        }
        if distance < 0 {
            findings.push(Finding::Duplicate { behind: distance.unsigned_abs() });
            self.handle_duplicate(frame, headers);
            return Accepted { bytes: 0, again: true };
        }
        if sent_before {
            findings.push(Finding::Retransmission);
            for pending in self.pending.iter_mut().filter(|pending| pending.covers(psn)) {
                pending.clean = false;
            }
        }
        let bytes = self.accept(frame, roce, headers, findings);
        Accepted { bytes, again: sent_before }
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

    fn note_gap(&mut self, expected: Psn, missing: u32, findings: &mut Vec<Finding>) {
        findings.push(match self.gap_reported {
            false => Finding::Gap { expected, missing },
            true => Finding::BehindGap { expected },
        });
        self.gap_reported = true;
    }

    /// Continues an unreliable connection after a gap, which loses the current message.
    fn resume_unreliable(&mut self, psn: Psn, info: OpcodeInfo, findings: &mut Vec<Finding>) {
        if !info.position.is_first() || matches!(self.open, Open::Message(_)) {
            findings.push(Finding::MessageLost);
        }
        self.open = if info.position.is_first() { Open::None } else { Open::Unknown };
        self.expected = Expected::Psn(psn);
        self.gap_reported = false;
    }

    /// Accepts the expected packet. Returns its payload bytes.
    fn accept(
        &mut self,
        frame: &RawFrame<'_>,
        roce: &Roce<'_>,
        headers: &Headers,
        findings: &mut Vec<Finding>,
    ) -> u64 {
        let (psn, opcode) = (headers.bth.psn, headers.bth.opcode);
        let info = opcode.info();
        self.gap_reported = false;
        let before = self.open_opcode();
        let in_sequence = match self.open {
            Open::Unknown => true,
            _ => info.may_follow(before.and_then(Opcode::info)),
        };
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
            self.messages += 1;
            self.count.add();
        }
        let span = self.span(headers);
        self.note_pending(frame, headers, span);
        self.expected = match (span, headers.reth) {
            (Some(span), _) => Expected::Psn(psn.advanced_by(span)),
            (None, reth) => Expected::AfterRead { first: psn, len: reth.map_or(0, |r| r.len) },
        };
        self.sent = later(self.sent, psn.advanced_by(span.unwrap_or(1)));
        bytes
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
            Operation::ReadRequest | Operation::CompareSwap | Operation::FetchAdd
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
