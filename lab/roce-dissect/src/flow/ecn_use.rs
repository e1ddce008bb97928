//! Which packets of a direction are sent as ECN-capable.

use roce_wire::{Ecn, OpcodeInfo};

/// ECN code points of the packets of a direction. Requests and responses, with payload and without,
/// are kept apart: an implementation may send data as ECN-capable, and ACKs not.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EcnUse {
    /// Kinds of packets of which one was ECT, one bit each.
    capable: u8,
    /// Kinds of packets of which one was Not-ECT.
    not_capable: u8,
}

impl EcnUse {
    /// Notes a packet. Returns true if it is marked, and all earlier ones of its kind were Not-ECT.
    pub(super) fn note(&mut self, info: OpcodeInfo, ecn: Ecn) -> bool {
        let kind = 1 << (2 * u8::from(info.is_request()) + u8::from(info.carries_payload()));
        match ecn {
            Ecn::NotCapable => self.not_capable |= kind,
            Ecn::Capable0 | Ecn::Capable1 => self.capable |= kind,
            Ecn::CongestionExperienced => return self.not_capable & !self.capable & kind != 0,
        }
        false
    }

    /// Returns true if a packet was ECT.
    pub(super) const fn is_capable(self) -> bool {
        self.capable != 0
    }
}
