//! A packet of modelled traffic: its length and what the ends need, without bytes.

use roce_fabric::Time;
use roce_fabric::{FabricFrame, SwitchFrame};

/// Class of data.
pub(super) const DATA_CLASS: usize = 3;
/// Class of CNPs, ACKs and NAKs.
pub(super) const CONTROL_CLASS: usize = 6;
/// Bytes of a CNP, an ACK or a NAK.
pub(super) const CONTROL_BYTES: u32 = 78;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Data,
    /// All packets before `seq` arrived.
    Ack,
    /// All packets before `seq` arrived, and packet `seen` behind a gap.
    Nak {
        seen: u64,
    },
    Cnp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packet {
    pub(super) flow: u32,
    pub(super) to: u32,
    pub(super) kind: Kind,
    pub(super) seq: u64,
    pub(super) bytes: u32,
    /// Data: departure; ACK: departure of the packet that it answers.
    pub(super) sent: Time,
    /// Data: may be marked.
    pub(super) ecn_capable: bool,
    /// Data: CE; ACK: a packet with CE is acknowledged.
    pub(super) ce: bool,
    /// Data: the receiver answers at once.
    pub(super) asks_ack: bool,
}

impl SwitchFrame for Packet {
    fn len(&self) -> u64 {
        self.bytes.into()
    }

    fn class(&self) -> usize {
        if self.kind == Kind::Data { DATA_CLASS } else { CONTROL_CLASS }
    }

    fn is_ecn_capable(&self) -> bool {
        self.ecn_capable
    }

    fn mark_ce(&mut self) {
        self.ce = true;
    }
}

impl FabricFrame for Packet {
    fn destination(&self) -> usize {
        self.to as usize
    }

    fn flow_hash(&self) -> u64 {
        u64::from(self.flow)
    }
}
