//! Outstanding requests.

use roce_wire::{Headers, Operation, Psn};

use crate::Timestamp;

/// A request without a response yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub(super) first: Psn,
    /// Number of PSNs; `None` if unknown.
    pub(super) packets: Option<u32>,
    /// Frame number.
    pub(super) number: u64,
    pub(super) time: Timestamp,
    /// The request was sent once, so the time to its response is a round trip.
    pub(super) clean: bool,
    /// Minimum number of captured messages that the responder has completed when it responds;
    /// `None` if unknown.
    pub(super) messages: Option<u32>,
    pub(super) kind: Kind,
}

/// Kind of response that completes a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// Acknowledgement, as requested by AckReq.
    Acknowledge,
    Atomic,
    Read {
        len: u32,
        next: Psn,
        bytes: u64,
        responses: u32,
    },
}

impl Kind {
    /// Returns `None` for a request that requires no response of its own.
    pub(super) fn of(headers: &Headers) -> Option<Self> {
        match (headers.bth.opcode.info().operation, headers.reth) {
            (Operation::ReadRequest, Some(reth)) => {
                Some(Self::Read { len: reth.len, next: headers.bth.psn, bytes: 0, responses: 0 })
            }
            // Answered as a READ of no bytes.
            (Operation::Flush | Operation::AtomicWrite, _) => {
                Some(Self::Read { len: 0, next: headers.bth.psn, bytes: 0, responses: 0 })
            }
            (Operation::CompareSwap | Operation::FetchAdd, _) => Some(Self::Atomic),
            _ => headers.bth.ack_request.then_some(Self::Acknowledge),
        }
    }

    pub(super) const fn has_data_response(&self) -> bool {
        !matches!(self, Self::Acknowledge)
    }
}

impl Pending {
    pub(super) fn last(&self) -> Psn {
        self.first.advanced_by(self.packets.unwrap_or(1) - 1)
    }

    pub(super) fn covers(&self, psn: Psn) -> bool {
        psn.distance_from(self.first) >= 0 && psn.distance_from(self.last()) <= 0
    }

    pub(super) const fn has_data_response(&self) -> bool {
        self.kind.has_data_response()
    }

    pub(super) fn may_read(&self, psn: Psn, mtu: Option<u16>) -> bool {
        let Kind::Read { len, .. } = self.kind else { return false };
        let packets = len.div_ceil(mtu.unwrap_or(256).into()).max(1);
        let distance = psn.distance_from(self.first);
        distance >= 0 && (distance as u32) < packets
    }
}
