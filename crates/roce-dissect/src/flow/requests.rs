//! The requests that one queue pair sends to another, and what became of them.

use std::collections::VecDeque;
use std::time::Duration;

use roce_wire::{Headers, Opcode, Operation, PathMtu, Position, Psn, Service, Shape};

use super::histogram::Histogram;
use crate::{Finding, RawFrame, Roce, Timestamp};

/// What a receiver of requests has seen, as far as the capture tells, and what waits for answers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Requests {
    pub(crate) mtu: Option<u16>,
    expected: Expected,
    /// Behind the last PSN that was ever sent.
    pub(crate) sent: Psn,
    /// The oldest PSN that is not acknowledged.
    pub(crate) unacked: Psn,
    /// A gap was seen, or the receiver said so: it will not say so again.
    gap_told: bool,
    open: Open,
    pub(crate) pending: VecDeque<Pending>,
    pub(crate) round_trips: Option<Histogram>,
    pub(crate) messages: u64,
}

/// What the receiver expects of the next request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Expected {
    #[default]
    Unknown,
    Psn(Psn),
    /// A READ whose answer takes an unknown number of PSNs, since the path MTU is not known yet.
    BehindRead {
        first: Psn,
        len: u32,
    },
}

/// A message of which the last packet has not come.
#[derive(Clone, Copy, Debug, Default)]
enum Open {
    /// The capture began, or was interrupted, in the middle of things.
    #[default]
    Unknown,
    None,
    Message(Message),
}

#[derive(Clone, Copy, Debug)]
struct Message {
    last: Opcode,
    since: Timestamp,
    bytes: u64,
    packets: u32,
    /// As the RETH said.
    promised: Option<u64>,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Taken {
    /// Bytes of payload that are new to the receiver.
    pub(crate) bytes: u64,
    /// It had been sent before.
    pub(crate) again: bool,
}

/// A request that waits for its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    first: Psn,
    /// `first` and all others that the answer takes.
    packets: Option<u32>,
    number: u64,
    time: Timestamp,
    /// It was sent once: the time to its answer is a round trip.
    clean: bool,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// It asked for an acknowledgement.
    Acknowledge,
    Atomic,
    Read {
        len: u32,
        next: Psn,
        bytes: u64,
        responses: u32,
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
        match &self.open {
            Open::Message(message) => Some(message.last),
            _ => None,
        }
    }

    pub(crate) const fn gap_told(&self) -> bool {
        self.gap_told
    }

    /// Has any request been seen?
    pub(crate) fn is_known(&self) -> bool {
        self.expected != Expected::Unknown
    }

    /// Connection management said where the sequence begins.
    pub(crate) fn begin_at(&mut self, psn: Psn, mtu: Option<PathMtu>) {
        if self.is_known() {
            return;
        }
        self.expected = Expected::Psn(psn);
        (self.sent, self.unacked) = (psn, psn);
        self.open = Open::None;
        self.mtu = mtu.map(|mtu| mtu.bytes() as u16).or(self.mtu);
    }

    /// Could `psn` be that of an answer to something outstanding?
    pub(crate) fn may_answer(&self, psn: Psn) -> bool {
        self.is_known() && psn.distance_from(self.unacked) >= 0 && psn.distance_from(self.sent) < 0
    }

    /// A request came.
    pub(crate) fn request(
        &mut self,
        frame: &RawFrame<'_>,
        roce: &Roce<'_>,
        headers: &Headers,
        findings: &mut Vec<Finding>,
    ) -> Taken {
        let (psn, shape) = (headers.bth.psn, headers.bth.opcode.shape());
        self.settle(psn, findings);
        let Expected::Psn(expected) = self.expected else { return Taken::default() };
        let distance = psn.distance_from(expected);
        let sent_before = psn.distance_from(self.sent) < 0;
        if distance > 0 {
            self.note_gap(expected, distance as u32, findings);
            if sent_before {
                findings.push(Finding::Retransmission);
            } else {
                self.sent = psn.advanced_by(self.span(headers).unwrap_or(1));
            }
            if shape.service == Service::Uc {
                self.resume_unreliable(psn, shape, findings);
                let bytes = self.take(frame, roce, headers, findings);
                return Taken { bytes, again: false };
            }
            // The receiver drops it: it has to come again.
            return Taken { bytes: 0, again: sent_before };
        }
        if distance < 0 {
            findings.push(Finding::Duplicate { behind: distance.unsigned_abs() });
            self.repeat(frame, headers);
            return Taken { bytes: 0, again: true };
        }
        if sent_before {
            findings.push(Finding::Retransmission);
            for pending in self.pending.iter_mut().filter(|pending| pending.covers(psn)) {
                pending.clean = false;
            }
        }
        let bytes = self.take(frame, roce, headers, findings);
        Taken { bytes, again: sent_before }
    }

    /// Finds out what is expected where that is not known.
    fn settle(&mut self, psn: Psn, findings: &mut Vec<Finding>) {
        match self.expected {
            Expected::Unknown => {
                findings.push(Finding::Joined);
                self.restart(psn);
            }
            Expected::BehindRead { first, len } => {
                let fits = |mtu: &PathMtu| {
                    first.advanced_by(len.div_ceil(mtu.bytes() as u32).max(1)) == psn
                };
                let distance = psn.distance_from(first);
                if let Some(mtu) = PathMtu::ALL.iter().find(|mtu| fits(mtu)) {
                    self.mtu = Some(mtu.bytes() as u16);
                    self.expected = Expected::Psn(psn);
                } else if distance <= 0 {
                    self.expected = Expected::Psn(first.advanced_by(1));
                } else {
                    self.expected = Expected::Psn(psn);
                }
                self.sent = later(self.sent, psn);
            }
            Expected::Psn(expected) => {
                // So far away is another life of the same queue pair number.
                let distance = psn.distance_from(expected).unsigned_abs();
                if distance > FARTHEST {
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
        self.gap_told = false;
        self.pending.clear();
    }

    fn note_gap(&mut self, expected: Psn, missing: u32, findings: &mut Vec<Finding>) {
        findings.push(match self.gap_told {
            false => Finding::Gap { expected, missing },
            true => Finding::BehindGap { expected },
        });
        self.gap_told = true;
    }

    /// An unreliable connection goes on behind a gap, and loses the message that had one.
    fn resume_unreliable(&mut self, psn: Psn, shape: Shape, findings: &mut Vec<Finding>) {
        if !shape.position.is_first() || matches!(self.open, Open::Message(_)) {
            findings.push(Finding::MessageLost);
        }
        self.open = if shape.position.is_first() { Open::None } else { Open::Unknown };
        self.expected = Expected::Psn(psn);
        self.gap_told = false;
    }

    /// The receiver takes it: it is what was expected.
    fn take(
        &mut self,
        frame: &RawFrame<'_>,
        roce: &Roce<'_>,
        headers: &Headers,
        findings: &mut Vec<Finding>,
    ) -> u64 {
        let (psn, opcode) = (headers.bth.psn, headers.bth.opcode);
        let shape = opcode.shape();
        self.gap_told = false;
        let before = self.open_opcode();
        let in_sequence = match self.open {
            Open::Unknown => true,
            _ => shape.may_follow(before.and_then(Opcode::shape)),
        };
        if !in_sequence {
            findings.push(Finding::OpcodeSequence { before });
        }
        let bytes = roce.payload_len as u64;
        if shape.carries_payload() {
            self.check_payload(shape.position, roce.payload_len, findings);
            self.grow_message(frame, headers, bytes, findings);
        } else {
            self.open = Open::None;
            self.messages += 1;
        }
        let span = self.span(headers);
        self.note_pending(frame, headers, span);
        self.expected = match (span, headers.reth) {
            (Some(span), _) => Expected::Psn(psn.advanced_by(span)),
            (None, reth) => Expected::BehindRead { first: psn, len: reth.map_or(0, |r| r.len) },
        };
        self.sent = later(self.sent, psn.advanced_by(span.unwrap_or(1)));
        bytes
    }

    /// PSNs that a request takes; `None` for a READ of unknown path MTU.
    fn span(&self, headers: &Headers) -> Option<u32> {
        match (headers.bth.opcode.shape().operation, headers.reth) {
            (Operation::ReadRequest, Some(reth)) => match self.mtu {
                Some(mtu) => Some(reth.len.div_ceil(mtu.into()).max(1)),
                None => (reth.len <= 256).then_some(1),
            },
            _ => Some(1),
        }
    }

    fn note_pending(&mut self, frame: &RawFrame<'_>, headers: &Headers, packets: Option<u32>) {
        let first = headers.bth.psn;
        let kind = match (headers.bth.opcode.shape().operation, headers.reth) {
            (Operation::ReadRequest, Some(reth)) => {
                Kind::Read { len: reth.len, next: first, bytes: 0, responses: 0 }
            }
            (Operation::CompareSwap | Operation::FetchAdd, _) => Kind::Atomic,
            _ if headers.bth.ack_request => Kind::Acknowledge,
            _ => return,
        };
        if self.pending.len() == MOST_PENDING {
            self.pending.pop_front();
        }
        let clean = first.distance_from(self.sent) >= 0 || self.sent == first;
        let (number, time) = (frame.number, frame.time);
        self.pending.push_back(Pending { first, packets, number, time, clean, kind });
    }

    /// It came again. A READ may be asked for again from its middle on.
    fn repeat(&mut self, frame: &RawFrame<'_>, headers: &Headers) {
        let psn = headers.bth.psn;
        for pending in self.pending.iter_mut().filter(|pending| pending.covers(psn)) {
            pending.clean = false;
        }
        let answered_anew = matches!(
            headers.bth.opcode.shape().operation,
            Operation::ReadRequest | Operation::CompareSwap | Operation::FetchAdd
        );
        if answered_anew {
            self.pending.retain(|pending| pending.first != psn || !pending.is_answered_by_data());
            let span = self.span(headers);
            self.note_pending(frame, headers, span);
            if let Some(last) = self.pending.back_mut() {
                last.clean = false;
            }
        }
    }

    fn check_payload(&mut self, position: Position, len: usize, findings: &mut Vec<Finding>) {
        check_payload(&mut self.mtu, position, len, findings);
    }

    fn grow_message(
        &mut self,
        frame: &RawFrame<'_>,
        headers: &Headers,
        bytes: u64,
        findings: &mut Vec<Finding>,
    ) {
        let opcode = headers.bth.opcode;
        let shape = opcode.shape();
        let begun = Message {
            last: opcode.code(),
            since: frame.time,
            bytes,
            packets: 1,
            promised: headers.reth.map(|reth| reth.len.into()),
        };
        let message = match (shape.position.is_first(), self.open) {
            (true, _) => begun,
            (false, Open::Message(message)) => Message {
                last: opcode.code(),
                bytes: message.bytes + bytes,
                packets: message.packets.saturating_add(1),
                ..message
            },
            // Its beginning is not known, nor its length.
            (false, _) => {
                if shape.position.is_last() {
                    self.open = Open::None;
                    self.messages += 1;
                }
                return;
            }
        };
        if shape.position.opens() {
            self.open = Open::Message(message);
            return;
        }
        self.open = Open::None;
        self.messages += 1;
        message.end(shape.operation, frame.time, findings);
    }

    /// An acknowledgement of everything up to `psn`.
    pub(crate) fn acknowledge(&mut self, psn: Psn, time: Timestamp, findings: &mut Vec<Finding>) {
        let ahead = psn.distance_from(self.sent);
        if ahead >= 0 {
            findings.push(Finding::GhostAck { ahead: ahead as u32 + 1 });
            return;
        }
        let packets = psn.advanced_by(1).distance_from(self.unacked);
        if packets <= 0 {
            return;
        }
        let after = self.retire(psn, time);
        findings.push(Finding::Acknowledges { packets: packets as u32, after });
        // The receiver has what the capture missed.
        if let Expected::Psn(expected) = self.expected
            && psn.distance_from(expected) >= 0
        {
            self.expected = Expected::Psn(psn.advanced_by(1));
            self.gap_told = false;
            self.open = Open::Unknown;
        }
    }

    /// The receiver refused `psn`, and has everything before it.
    pub(crate) fn refuse(&mut self, psn: Psn, time: Timestamp) {
        if psn.distance_from(self.unacked) < 0 || psn.distance_from(self.sent) > 0 {
            return;
        }
        if psn != self.unacked {
            self.retire(psn.previous(), time);
        }
        for pending in &mut self.pending {
            pending.clean = false;
        }
        if self.expected() != Some(psn) {
            self.expected = Expected::Psn(psn);
            self.open = Open::Unknown;
        }
        self.gap_told = true;
    }

    /// Everything up to `psn` is done; returns the time since its sending where that is a round
    /// trip.
    fn retire(&mut self, psn: Psn, time: Timestamp) -> Option<Duration> {
        self.unacked = later(self.unacked, psn.advanced_by(1));
        let mut after = None;
        self.pending.retain(|pending| {
            let retired = psn.distance_from(pending.last()) >= 0 && !pending.is_answered_by_data();
            if retired && pending.clean && pending.last() == psn {
                after = Some(time.since(pending.time));
            }
            !retired
        });
        if let Some(after) = after {
            self.round_trips.get_or_insert_default().add(after);
        }
        after
    }

    /// An answer to an atomic; true where it was asked for.
    pub(crate) fn atomic_answer(
        &mut self,
        psn: Psn,
        time: Timestamp,
        findings: &mut Vec<Finding>,
    ) -> bool {
        let is_it =
            |pending: &Pending| pending.first == psn && matches!(pending.kind, Kind::Atomic);
        let Some(at) = self.pending.iter().position(is_it) else { return false };
        let Some(pending) = self.pending.remove(at) else { return false };
        self.answered(&pending, time, findings);
        self.retire(psn, time);
        true
    }

    fn answered(&mut self, pending: &Pending, time: Timestamp, findings: &mut Vec<Finding>) {
        let after = time.since(pending.time);
        findings.push(Finding::Answers { request: pending.number, after });
        if pending.clean {
            self.round_trips.get_or_insert_default().add(after);
        }
    }

    /// A packet of an answer to a READ; the bytes that are new, or `None` where it was not asked
    /// for.
    pub(crate) fn read_answer(
        &mut self,
        frame: &RawFrame<'_>,
        roce: &Roce<'_>,
        headers: &Headers,
        findings: &mut Vec<Finding>,
    ) -> Option<u64> {
        let (psn, position) = (headers.bth.psn, headers.bth.opcode.shape().position);
        check_payload(&mut self.mtu, position, roce.payload_len, findings);
        // The latest first: a READ that was asked for again answers as the newer.
        let at = self.pending.iter().rposition(|pending| pending.may_read(psn, self.mtu))?;
        let mut pending = self.pending[at];
        let Kind::Read { len, next, bytes, responses } = &mut pending.kind else { return None };
        let distance = psn.distance_from(*next);
        if distance > 0 {
            let (expected, missing) = (*next, distance as u32);
            findings.push(Finding::Gap { expected, missing });
        } else if distance < 0 {
            findings.push(Finding::Duplicate { behind: distance.unsigned_abs() });
            return Some(0);
        }
        let first_answer = *responses == 0;
        *responses += 1;
        *bytes += roce.payload_len as u64;
        *next = psn.advanced_by(1);
        let (bytes, len, responses) = (*bytes, u64::from(*len), *responses);
        self.pending[at] = pending;
        if first_answer {
            self.answered(&pending, frame.time, findings);
        }
        self.retire(psn, frame.time);
        self.sent = later(self.sent, psn.advanced_by(1));
        if let (Expected::BehindRead { first, len }, Some(mtu)) = (self.expected, self.mtu) {
            let span = len.div_ceil(mtu.into()).max(1);
            self.expected = Expected::Psn(first.advanced_by(span));
            self.sent = later(self.sent, first.advanced_by(span));
        }
        if position.is_last() {
            let took = frame.time.since(pending.time);
            let operation = Operation::ReadResponse;
            if responses > 1 {
                let packets = responses;
                findings.push(Finding::MessageEnd { operation, bytes, packets, took });
            }
            if bytes != len && distance == 0 {
                findings.push(Finding::MessageLength { promised: len, carried: bytes });
            }
            if let Some(at) = self.pending.iter().rposition(|p| p.first == pending.first) {
                self.pending.remove(at);
            }
        }
        Some(roce.payload_len as u64)
    }
}

impl Pending {
    fn last(&self) -> Psn {
        self.first.advanced_by(self.packets.unwrap_or(1) - 1)
    }

    fn covers(&self, psn: Psn) -> bool {
        psn.distance_from(self.first) >= 0 && psn.distance_from(self.last()) <= 0
    }

    const fn is_answered_by_data(&self) -> bool {
        !matches!(self.kind, Kind::Acknowledge)
    }

    fn may_read(&self, psn: Psn, mtu: Option<u16>) -> bool {
        let Kind::Read { len, .. } = self.kind else { return false };
        let packets = len.div_ceil(mtu.unwrap_or(256).into()).max(1);
        let distance = psn.distance_from(self.first);
        distance >= 0 && (distance as u32) < packets
    }
}

impl Message {
    fn end(&self, operation: Operation, time: Timestamp, findings: &mut Vec<Finding>) {
        let Self { bytes, packets, .. } = *self;
        if let Some(promised) = self.promised.filter(|promised| *promised != bytes) {
            findings.push(Finding::MessageLength { promised, carried: bytes });
        }
        if packets > 1 {
            let took = time.since(self.since);
            findings.push(Finding::MessageEnd { operation, bytes, packets, took });
        }
    }
}

/// Does the payload have the length that its place in the message asks for? Learns the path MTU.
fn check_payload(
    mtu: &mut Option<u16>,
    position: Position,
    len: usize,
    findings: &mut Vec<Finding>,
) {
    let whole = u16::try_from(len).ok().filter(|_| PathMtu::from_bytes(len).is_some());
    let len = len as u32;
    match (position, *mtu) {
        (Position::First | Position::Middle, known) => match (whole, known) {
            (Some(whole), None) => *mtu = Some(whole),
            (Some(whole), Some(known)) if whole == known => {}
            (_, mtu) => findings.push(Finding::NotOneMtu { len, mtu }),
        },
        (Position::Last, _) if len == 0 => findings.push(Finding::EmptyLast),
        (Position::Last | Position::Only, known) => {
            let mtu = known.unwrap_or(4096);
            if len > mtu.into() {
                findings.push(Finding::AboveMtu { len, mtu });
            }
        }
    }
}

fn later(a: Psn, b: Psn) -> Psn {
    if b.distance_from(a) > 0 { b } else { a }
}

/// Requests that are remembered while they wait for an answer.
const MOST_PENDING: usize = 128;

/// A jump further than this is no gap: no window is that large.
const FARTHEST: u32 = 1 << 18;
