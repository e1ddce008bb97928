//! One direction of a connection: everything from one address to one queue pair.

use std::net::IpAddr;
use std::time::Duration;

use roce_wire::{Ecn, Headers, Operation, Qpn, Service, Syndrome};

use super::requests::Requests;
use crate::{Finding, Icrc, RawFrame, Roce, Timestamp};

/// What packets of one direction have in common.
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
    /// The other direction, once it is known.
    pub(crate) partner: Option<u32>,
    /// Of datagrams, where it is not always the same: the last one.
    pub(crate) source_qp: Option<Qpn>,
    pub(crate) source_port: u16,
    pub(crate) service: Option<Service>,
    pub(crate) counts: DirectionCounts,
    pub(crate) requests: Requests,
    /// Is it found among those that look for a partner?
    pub(crate) is_listed: bool,
}

/// What was counted in one direction of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct DirectionCounts {
    pub packets: u64,
    /// From the Ethernet header on, as on the wire.
    pub wire_bytes: u64,
    /// Payload that the receiver took, each byte once.
    pub good_bytes: u64,
    /// Messages whose last packet the receiver took.
    pub messages: u64,
    /// Packets that had been sent before.
    pub retransmitted: u64,
    /// Gaps in the sequence.
    pub gaps: u64,
    /// Packets that the receiver had already taken.
    pub duplicates: u64,
    pub naks: u64,
    pub rnrs: u64,
    /// Packets that a router marked.
    pub ecn_marks: u64,
    pub cnps: u64,
    pub wrong_icrcs: u64,
    /// The first and the last packet.
    pub first: Option<Timestamp>,
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
            is_listed: false,
        }
    }

    /// Counts what every packet has.
    pub(crate) fn count(
        &mut self,
        frame: &RawFrame<'_>,
        roce: &Roce<'_>,
        findings: &mut Vec<Finding>,
    ) {
        let counts = &mut self.counts;
        counts.packets += 1;
        // Of a train, each packet but the first would have had these headers too.
        let headers = roce.offsets.bth.min(MAX_OUTER_LEN);
        counts.wire_bytes += match roce.train {
            None => u64::from(frame.original_len),
            Some(_) => (roce.offsets.end - roce.offsets.bth + headers) as u64,
        };
        counts.first.get_or_insert(frame.time);
        counts.last = Some(frame.time);
        if roce.ecn() == Ecn::CongestionExperienced {
            counts.ecn_marks += 1;
            findings.push(Finding::CongestionMarked);
        }
        counts.wrong_icrcs += u64::from(matches!(roce.icrc, Icrc::Wrong { .. }));
        self.source_port = roce.source_port;
    }

    /// A request, or a datagram, on its way to the responder.
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
        let taken = self.requests.request(frame, roce, headers, findings);
        self.counts.good_bytes += taken.bytes;
        self.counts.retransmitted += u64::from(taken.again);
        self.counts.messages = self.requests.messages;
        self.count_findings(&findings[from..]);
    }

    /// An answer in this direction, to requests in the other.
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
        let asked = match headers.bth.opcode.info().operation {
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
        if !asked {
            // A request that was sent twice is answered twice.
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

    /// Does somebody wait for an answer to what went this way?
    pub(crate) fn is_waiting(&self) -> bool {
        !self.requests.pending.is_empty()
    }
}

impl DirectionCounts {
    /// From the first packet to the last.
    pub fn lasted(&self) -> Duration {
        match (self.first, self.last) {
            (Some(first), Some(last)) => last.since(first),
            _ => Duration::ZERO,
        }
    }
}

/// Ethernet, two VLAN tags, IPv6 and UDP: in a train the BTH of a later packet stands further back.
const MAX_OUTER_LEN: usize = 14 + 8 + 40 + 8;
