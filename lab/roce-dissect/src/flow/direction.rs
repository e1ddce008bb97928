//! One direction of a connection: packets from one address to one queue pair.

use std::net::IpAddr;
use std::time::Duration;

use roce_wire::{Ecn, Headers, Operation, Qpn, Service, Syndrome};

use super::ecn_use::EcnUse;
use super::reaction::Sender;
use super::requests::Requests;
use crate::{Finding, Icrc, RawFrame, Roce, Timestamp};

/// Key of a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) qp: Qpn,
}

#[derive(Debug)]
pub(crate) struct Direction {
    pub(crate) key: Key,
    /// Index of the connection.
    pub(crate) connection: u32,
    pub(crate) forward: bool,
    /// Opposite direction, once known.
    pub(crate) partner: Option<u32>,
    /// Source queue pair of the last datagram.
    pub(crate) source_qp: Option<Qpn>,
    pub(crate) source_port: u16,
    pub(crate) service: Option<Service>,
    /// Without what `requests` counts; see [`totals`](Self::totals).
    pub(super) counts: DirectionCounts,
    pub(crate) requests: Requests,
    /// Its sender under congestion, once a packet was ECN-capable or a CNP came.
    pub(super) sender: Option<Box<Sender>>,
    pub(super) ecn_use: EcnUse,
    /// The direction is listed in [`Pairing`](super::Pairing).
    pub(crate) is_listed: bool,
}

/// Counts of one direction of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct DirectionCounts {
    pub packets: u64,
    /// Bytes on the wire from the Ethernet header on.
    pub wire_bytes: u64,
    /// Payload bytes that the receiver accepted, without duplicates.
    pub good_bytes: u64,
    /// Messages whose last packet the receiver accepted.
    pub messages: u64,
    /// Packets that were sent before.
    pub retransmitted: u64,
    /// Gaps in the sequence.
    pub gaps: u64,
    /// Packets that the receiver had already.
    pub duplicates: u64,
    pub naks: u64,
    pub rnrs: u64,
    /// Packets with an ECN mark.
    pub ecn_marks: u64,
    pub cnps: u64,
    /// Responses with BECN: the responder has received marked packets.
    pub becns: u64,
    pub gap_reports: u64,
    pub wrong_icrcs: u64,
    /// Time of the first packet.
    pub first: Option<Timestamp>,
    /// Time of the last packet.
    pub last: Option<Timestamp>,
}

impl Direction {
    pub(crate) fn new(key: Key, connection: u32, forward: bool) -> Self {
        Self {
            key,
            connection,
            forward,
            partner: None,
            source_qp: None,
            source_port: 0,
            service: None,
            counts: DirectionCounts::default(),
            requests: Requests::default(),
            sender: None,
            ecn_use: EcnUse::default(),
            is_listed: false,
        }
    }

    /// Returns all counts.
    pub(super) const fn totals(&self) -> DirectionCounts {
        DirectionCounts {
            good_bytes: self.counts.good_bytes + self.requests.good_bytes,
            messages: self.counts.messages + self.requests.messages,
            ..self.counts
        }
    }

    /// Updates the counts that apply to every packet.
    pub(crate) fn count(
        &mut self,
        frame: &RawFrame<'_>,
        roce: &Roce<'_>,
        findings: &mut Vec<Finding>,
    ) {
        let counts = &mut self.counts;
        counts.packets += 1;
        // On the wire, each packet of a train has the outer headers.
        let headers = roce.offsets.bth.min(MAX_OUTER_LEN);
        let wire_bytes = match roce.train {
            None => u64::from(frame.original_len),
            Some(_) => (roce.offsets.end - roce.offsets.bth + headers) as u64,
        };
        counts.wire_bytes += wire_bytes;
        counts.first.get_or_insert(frame.time);
        counts.last = Some(frame.time);
        let is_marked = roce.ecn() == Ecn::CongestionExperienced;
        if is_marked {
            counts.ecn_marks += 1;
            findings.push(Finding::CongestionMarked);
        }
        if roce.ecn() != Ecn::NotCapable || self.sender.is_some() {
            let sender = self.sender.get_or_insert_default();
            sender.on_packet(frame.time, wire_bytes, is_marked);
        }
        counts.wrong_icrcs += u64::from(matches!(roce.icrc, Icrc::Wrong { .. }));
        self.source_port = roce.source_port;
    }

    /// Handles a request or datagram.
    pub(crate) fn handle_request(
        &mut self,
        frame: &RawFrame<'_>,
        roce: &Roce<'_>,
        headers: &Headers,
        findings: &mut Vec<Finding>,
    ) {
        if headers.bth.opcode.info().service == Service::Ud {
            self.source_qp = headers.deth.map(|deth| deth.source_qp);
            self.counts.good_bytes += roce.payload_len as u64;
            self.counts.messages += 1;
            return;
        }
        let from = findings.len();
        let again = self.requests.request(frame, roce, headers, findings);
        self.counts.retransmitted += u64::from(again);
        self.count_findings(&findings[from..]);
    }

    /// Handles a response to `requests` of the opposite direction.
    pub(crate) fn handle_response(
        &mut self,
        requests: &mut Requests,
        frame: &RawFrame<'_>,
        roce: &Roce<'_>,
        headers: &Headers,
        findings: &mut Vec<Finding>,
    ) {
        let (psn, time) = (headers.bth.psn, frame.time);
        let from = findings.len();
        let refused = headers.aeth.is_some_and(|aeth| match aeth.syndrome {
            Syndrome::Ack { .. } => false,
            Syndrome::RnrNak { timer } => {
                findings.push(Finding::Rnr(timer));
                true
            }
            Syndrome::Nak(code) => {
                findings.push(Finding::Nak(code));
                true
            }
            Syndrome::Reserved(byte) => {
                findings.push(Finding::ReservedSyndrome(byte));
                true
            }
        });
        if refused {
            requests.refuse(psn, time);
            self.count_findings(&findings[from..]);
            return;
        }
        let is_requested = match headers.bth.opcode.info().operation {
            Operation::ReadResponse => {
                let new = requests.read_response(frame, roce, headers, findings);
                self.counts.good_bytes += new.unwrap_or(0);
                new.is_some()
            }
            Operation::AtomicAck => requests.atomic_response(headers, time, findings),
            _ => {
                requests.acknowledge(headers, time, findings);
                true
            }
        };
        if !is_requested {
            // A request that was sent twice gets two responses.
            let behind = requests.unacked.distance_from(psn);
            findings.push(match u32::try_from(behind) {
                Ok(behind @ 1..) => Finding::Duplicate { behind },
                _ => Finding::Unrequested,
            });
        }
        self.count_findings(&findings[from..]);
    }

    fn count_findings(&mut self, findings: &[Finding]) {
        let counts = &mut self.counts;
        for finding in findings {
            match finding {
                Finding::Gap { .. } => counts.gaps += 1,
                Finding::Duplicate { .. } => counts.duplicates += 1,
                Finding::Nak(_) => counts.naks += 1,
                Finding::Rnr(_) => counts.rnrs += 1,
                _ => {}
            }
        }
    }

    /// Returns true if a CNP at this time was drawn by a packet that the capture would have, if it
    /// was drawn by a packet that passed the point of capture.
    pub(super) fn has_packets_before_cnp(&self, time: Timestamp) -> bool {
        let lasts = |first| self.requests.has_first || time.since(first) >= MAX_CNP_DELAY;
        !self.requests.has_missed && self.counts.first.is_some_and(lasts)
    }

    /// Returns true if requests of this direction wait for a response.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.requests.pending.is_empty()
    }
}

impl DirectionCounts {
    /// Returns the time from the first packet to the last.
    pub fn lasted(&self) -> Duration {
        match (self.first, self.last) {
            (Some(first), Some(last)) => last.since(first),
            _ => Duration::ZERO,
        }
    }
}

/// Time within which a receiver answers a marked packet. Cards take microseconds, an endpoint in
/// software as long as its thread waits for a processor.
const MAX_CNP_DELAY: Duration = Duration::from_millis(10);

/// Bytes of Ethernet, two VLAN tags, IPv6 and UDP. The BTH offset of a later packet of a train is
/// larger.
const MAX_OUTER_LEN: usize = 14 + 8 + 40 + 8;
