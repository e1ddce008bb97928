//! The connection of a packet.

use roce_wire::{Opcode, Psn, Qpn};

/// Connection of a packet, with its state before the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowContext {
    /// The connection's [`number`](crate::Connection::number).
    pub connection: u32,
    /// The packet has the direction of the connection's first packet.
    pub forward: bool,
    /// Queue pair of the sender, once known.
    pub source_qp: Option<Qpn>,
    /// State of the connection before the packet.
    pub state: FlowState,
}

/// State of a direction before a packet: for a request its own direction, for a response the
/// direction of the requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowState {
    /// PSN that the responder expects next.
    pub expected: Option<Psn>,
    /// Number of packets from `expected` on that were captured already. They were behind a gap: a
    /// responder that keeps such packets has them.
    pub seen_ahead: u32,
    /// Opcode of the last packet of an incomplete message.
    pub open: Option<Opcode>,
    /// The responder has sent a NAK for the current gap.
    pub gap_reported: bool,
    /// Oldest unacknowledged PSN.
    pub unacknowledged: Option<Psn>,
    /// PSN after the last one sent.
    pub sent: Option<Psn>,
    /// Path MTU in bytes.
    pub mtu: Option<u16>,
}
