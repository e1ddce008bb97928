//! What a packet says that a rule may ask for.

use core::net::IpAddr;

use roce_wire::management::{CmAttribute, MANAGEMENT_DATAGRAM_LEN, ManagementHeader};
use roce_wire::{Frame, KnownOpcode, Operation, Psn, Qpn, Syndrome};

use super::PacketKind;

/// What an Ethernet frame with one RoCEv2 packet says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketFacts {
    /// Opcode.
    pub opcode: KnownOpcode,
    /// Sequence number.
    pub psn: Psn,
    /// Syndrome, of packets that have one.
    pub syndrome: Option<Syndrome>,
    /// Message of connection management, of datagrams to queue pair 1 that have one.
    pub management: Option<CmAttribute>,
    /// Queue pair that sends it.
    pub sender: Sender,
}

/// A queue pair that sends. A packet of a connection does not name it, but its receiver, which is
/// connected to no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sender {
    source: IpAddr,
    /// `None` for datagrams, which one queue pair sends to many.
    receiver: Option<IpAddr>,
    qpn: Qpn,
}

impl PacketFacts {
    /// Reads a frame; `None` if it has no RoCEv2 packet. The ICRC is not checked.
    pub fn of(frame: &[u8]) -> Option<Self> {
        let frame = Frame::parse(frame).ok()?;
        let packet = frame.packet().ok()?;
        let headers = packet.headers();
        let (receiver, qpn) = match headers.deth {
            Some(deth) => (None, deth.source_qp),
            None => (Some(frame.destination()), headers.bth.dest_qp),
        };
        Some(Self {
            opcode: headers.bth.opcode,
            psn: headers.bth.psn,
            syndrome: headers.aeth.map(|aeth| aeth.syndrome),
            management: match headers.bth.dest_qp {
                Qpn::GSI => cm_attribute(packet.payload()),
                _ => None,
            },
            sender: Sender { source: frame.source(), receiver, qpn },
        })
    }

    fn is_nak(&self) -> bool {
        matches!(self.syndrome, Some(Syndrome::Nak(_) | Syndrome::RnrNak { .. }))
    }
}

/// Returns the message of connection management that a payload of queue pair 1 has.
fn cm_attribute(payload: &[u8]) -> Option<CmAttribute> {
    let datagram: &[u8; MANAGEMENT_DATAGRAM_LEN] = payload.try_into().ok()?;
    let header = ManagementHeader::from_bytes(datagram.first_chunk()?);
    header.cm_attribute().ok()
}

impl PacketKind {
    /// Returns true if a packet is of this kind; `None` is a frame without a RoCE packet.
    pub fn includes(self, facts: Option<&PacketFacts>) -> bool {
        let Some(facts) = facts else { return self == Self::Any };
        let info = facts.opcode.info();
        let is_acknowledge = info.operation == Operation::Acknowledge;
        match self {
            Self::Any => true,
            Self::Request => info.is_request(),
            Self::Response => info.is_response(),
            Self::Ack => is_acknowledge && !facts.is_nak(),
            Self::Nak => is_acknowledge && facts.is_nak(),
            Self::RnrNak => matches!(facts.syndrome, Some(Syndrome::RnrNak { .. })),
            Self::Cnp => info.operation == Operation::Cnp,
            Self::Send => info.operation == Operation::Send,
            Self::Write => info.operation == Operation::Write,
            Self::Read => info.operation == Operation::ReadRequest,
            Self::ReadResponse => info.operation == Operation::ReadResponse,
            Self::Atomic => {
                matches!(info.operation, Operation::CompareSwap | Operation::FetchAdd)
            }
            Self::Management(attribute) => facts.management == Some(attribute),
            Self::Opcode(opcode) => facts.opcode == opcode,
        }
    }
}
