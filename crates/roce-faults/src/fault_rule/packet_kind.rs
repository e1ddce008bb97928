//! Kinds of packets that a rule may name.

use roce_wire::KnownOpcode;
use roce_wire::management::CmAttribute;

/// Kind of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PacketKind {
    /// Any frame.
    Any,
    /// Requests, of all services.
    Request,
    /// Packets of read responses, ACKs, NAKs, and acknowledges of atomics.
    Response,
    /// Acknowledge packets that are no NAK.
    Ack,
    /// NAKs, also RNR NAKs.
    Nak,
    /// RNR NAKs.
    RnrNak,
    /// Congestion notifications.
    Cnp,
    /// Packets of SENDs.
    Send,
    /// Packets of RDMA WRITEs.
    Write,
    /// Requests of RDMA READs.
    Read,
    /// Packets of read responses.
    ReadResponse,
    /// Requests of atomics.
    Atomic,
    /// Datagrams of connection management with this message.
    Management(CmAttribute),
    /// Packets of this opcode.
    Opcode(KnownOpcode),
}
