//! Effect of responses on outstanding requests.

use std::time::Duration;

use roce_wire::{Headers, Operation, Psn};

use super::message::check_payload;
use super::pending::{Kind, Pending};
use super::{Expected, Requests, later};
use crate::{Finding, RawFrame, Roce, Timestamp};

/// Requests that a response completes.
#[derive(Clone, Copy, Debug, Default)]
struct Retired {
    /// Time since the last request was sent, if that is a round trip.
    after: Option<Duration>,
    /// See [`Pending::messages`].
    messages: Option<u32>,
}

impl Requests {
    /// Handles an acknowledgement of all requests up to its PSN.
    pub(crate) fn acknowledge(
        &mut self,
        headers: &Headers,
        time: Timestamp,
        findings: &mut Vec<Finding>,
    ) {
        let psn = headers.bth.psn;
        let ahead = psn.distance_from(self.sent);
        if ahead >= 0 {
            findings.push(Finding::GhostAck { ahead: ahead as u32 + 1 });
            return;
        }
        let packets = psn.advanced_by(1).distance_from(self.unacked);
        if packets <= 0 {
            return;
        }
        let Retired { after, messages } = self.retire(psn, time);
        findings.push(Finding::Acknowledges { packets: packets as u32, after });
        self.note_executed(psn.advanced_by(1));
        self.check_count(headers, messages, findings);
    }

    /// Handles a NAK for `psn`, which acknowledges all earlier requests.
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
        self.note_expected(psn);
    }

    /// Completes all requests up to `psn`.
    fn retire(&mut self, psn: Psn, time: Timestamp) -> Retired {
        self.unacked = later(self.unacked, psn.advanced_by(1));
        let mut done = Retired::default();
        self.pending.retain(|pending| {
            let retired = psn.distance_from(pending.last()) >= 0 && !pending.has_data_response();
            if retired && pending.last() == psn {
                done.messages = pending.messages;
                if pending.clean {
                    done.after = Some(time.since(pending.time));
                }
            }
            !retired
        });
        if let Some(after) = done.after {
            self.round_trips.get_or_insert_default().add(after);
        }
        done
    }

    /// Checks the message sequence number. The responder has completed at least `least` of the
    /// captured messages, if known, and at most all of them.
    fn check_count(&mut self, headers: &Headers, least: Option<u32>, findings: &mut Vec<Finding>) {
        // After a gap the responder may have messages that the capture lacks.
        if let (Some(aeth), false) = (headers.aeth, self.gap_reported) {
            self.count.check(aeth.msn, least.unwrap_or(0), findings);
        }
    }

    /// Handles the response to an atomic. Returns true if it was requested.
    pub(crate) fn atomic_response(
        &mut self,
        headers: &Headers,
        time: Timestamp,
        findings: &mut Vec<Finding>,
    ) -> bool {
        let psn = headers.bth.psn;
        let is_it =
            |pending: &Pending| pending.first == psn && matches!(pending.kind, Kind::Atomic);
        let Some(at) = self.pending.iter().position(is_it) else { return false };
        let Some(pending) = self.pending.remove(at) else { return false };
        self.record_response(&pending, time, findings);
        self.retire(psn, time);
        self.note_executed(psn.advanced_by(1));
        self.check_count(headers, pending.messages, findings);
        true
    }

    fn record_response(&mut self, pending: &Pending, time: Timestamp, findings: &mut Vec<Finding>) {
        let after = time.since(pending.time);
        findings.push(Finding::Answers { request: pending.number, after });
        if pending.clean {
            self.round_trips.get_or_insert_default().add(after);
        }
    }

    /// Handles a READ response packet. Returns the number of new bytes, or `None` if it was not
    /// requested.
    pub(crate) fn read_response(
        &mut self,
        frame: &RawFrame<'_>,
        roce: &Roce<'_>,
        headers: &Headers,
        findings: &mut Vec<Finding>,
    ) -> Option<u64> {
        let (psn, position) = (headers.bth.psn, headers.bth.opcode.info().position);
        check_payload(&mut self.mtu, position, roce.payload_len, findings);
        // Latest first: a repeated READ matches the newer request.
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
        let first_response = *responses == 0;
        *responses += 1;
        *bytes += roce.payload_len as u64;
        *next = psn.advanced_by(1);
        let (bytes, len, responses) = (*bytes, u64::from(*len), *responses);
        self.pending[at] = pending;
        if first_response {
            self.record_response(&pending, frame.time, findings);
        }
        self.retire(psn, frame.time);
        if pending.packets.is_some() {
            self.note_executed(pending.last().advanced_by(1));
        }
        self.sent = later(self.sent, psn.advanced_by(1));
        if let (Expected::AfterRead { first, len }, Some(mtu)) = (self.expected, self.mtu) {
            let span = len.div_ceil(mtu.into()).max(1);
            self.expected = Expected::Psn(first.advanced_by(span));
            self.sent = later(self.sent, first.advanced_by(span));
        }
        self.check_count(headers, pending.messages, findings);
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
