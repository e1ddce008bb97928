//! A request that waits for its answer.

use roce_wire::{Headers, Operation, Psn};

use crate::Timestamp;

/// A request that waits for its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub(super) first: Psn,
    /// `first` and all others that the answer takes.
    pub(super) packets: Option<u32>,
    /// Of the frame that it came in.
    pub(super) number: u64,
    pub(super) time: Timestamp,
    /// It was sent once: the time to its answer is a round trip.
    pub(super) clean: bool,
    /// Messages that the responder has counted at the least when it answers, of those that were
    /// seen; `None` where that is not known.
    pub(super) messages: Option<u32>,
    pub(super) kind: Kind,
}

/// What answers a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
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

impl Kind {
    /// `None` for a request that need not be answered by itself.
    pub(super) fn of(headers: &Headers) -> Option<Self> {
        match (headers.bth.opcode.info().operation, headers.reth) {
            (Operation::ReadRequest, Some(reth)) => {
                Some(Self::Read { len: reth.len, next: headers.bth.psn, bytes: 0, responses: 0 })
            }
            (Operation::CompareSwap | Operation::FetchAdd, _) => Some(Self::Atomic),
            _ => headers.bth.ack_request.then_some(Self::Acknowledge),
        }
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
        !matches!(self.kind, Kind::Acknowledge)
    }

    pub(super) fn may_read(&self, psn: Psn, mtu: Option<u16>) -> bool {
        let Kind::Read { len, .. } = self.kind else { return false };
        let packets = len.div_ceil(mtu.unwrap_or(256).into()).max(1);
        let distance = psn.distance_from(self.first);
        distance >= 0 && (distance as u32) < packets
    }
}
