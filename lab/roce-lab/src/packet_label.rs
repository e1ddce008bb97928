//! Labels of packets on a ladder.

use roce_wire::management::{CmDatagram, CmMessage, ServiceId};
use roce_wire::{Aeth, Frame, Headers, NakCode, Operation, Qpn, Service, Syndrome};

/// Label of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketLabel {
    /// Class of the packet.
    pub class: PacketClass,
    /// Operation and position in the message: `WRITE First`.
    pub name: String,
    /// Packet sequence number; `None` if it is no RoCE packet.
    pub psn: Option<u32>,
    /// Destination queue pair; `None` if it is no RoCE packet.
    pub dest_qp: Option<u32>,
    /// Further facts, a few words each.
    pub facts: Vec<String>,
}

/// Class of a packet on a ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum PacketClass {
    /// SEND or WRITE.
    Data,
    /// READ request or atomic.
    Request,
    /// Response to a READ or an atomic.
    Response,
    Ack,
    /// NAK or RNR NAK.
    Nak,
    /// Congestion notification, or no RoCE packet.
    Other,
}

impl PacketClass {
    /// Returns the class name for a style sheet.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Request => "request",
            Self::Response => "response",
            Self::Ack => "ack",
            Self::Nak => "nak",
            Self::Other => "other",
        }
    }
}

impl PacketLabel {
    /// Returns the label of an Ethernet frame with one packet.
    pub fn of_frame(frame: &[u8]) -> Self {
        let label = Frame::parse(frame).ok().and_then(|frame| {
            let packet = frame.packets(None).next()?.ok()?;
            Some(Self::of(&packet.headers(), packet.payload(), packet.payload().len()))
        });
        label.unwrap_or_else(|| Self::other(crate::packet_layers::kind(frame)))
    }

    /// Returns the label of a frame that is named by words alone.
    pub(crate) fn other(name: String) -> Self {
        Self { class: PacketClass::Other, name, psn: None, dest_qp: None, facts: Vec::new() }
    }

    /// Returns the label of a packet with these headers and a payload of `payload_len` bytes, of which
    /// `payload` may be only the beginning.
    pub fn of(headers: &Headers, payload: &[u8], payload_len: usize) -> Self {
        if headers.bth.dest_qp == Qpn::GSI
            && headers.deth.is_some()
            && let Ok(datagram) = CmDatagram::decode(payload)
        {
            return Self::of_management(&datagram.message);
        }
        let bth = headers.bth;
        let info = bth.opcode.info();
        let mut class = match info.operation {
            Operation::Send | Operation::Write => PacketClass::Data,
            Operation::ReadRequest
            | Operation::CompareSwap
            | Operation::FetchAdd
            | Operation::Flush
            | Operation::AtomicWrite => PacketClass::Request,
            Operation::ReadResponse | Operation::AtomicAck => PacketClass::Response,
            Operation::Acknowledge => PacketClass::Ack,
            Operation::Cnp | Operation::GapReport => PacketClass::Other,
        };
        let name = bth.opcode.name();
        let name = name.strip_prefix("RC ").unwrap_or(name);
        let mut name = name.strip_prefix("RDMA ").unwrap_or(name).replace("with Immediate", "+imm");
        name = name.replace("with Invalidate", "+inv");
        if info.service == Service::Ud {
            // A datagram is one packet.
            name = name.replace(" Only", "");
        }
        let mut facts = Vec::new();
        if info.carries_payload() {
            facts.push(format!("{payload_len} bytes"));
        }
        if let Some(reth) = headers.reth
            && info.operation == Operation::ReadRequest
        {
            facts.push(format!("requests {} bytes", reth.len));
        }
        if let Some(aeth) = headers.aeth {
            class = Self::read_verdict(aeth, info.operation, class, &mut name, &mut facts);
        }
        if let Some(atomic) = headers.atomic_eth {
            match info.operation {
                Operation::FetchAdd => facts.push(format!("add {}", atomic.swap_or_add)),
                _ => {
                    facts.push(format!("if {} then {}", atomic.compare, atomic.swap_or_add));
                }
            }
        }
        if let Some(ack) = headers.atomic_ack {
            facts.push(format!("was {}", ack.original));
        }
        if let Some(deth) = headers.deth {
            facts.push(format!("from {:#x}", deth.source_qp.get()));
            facts.push(format!("Q_Key {:#x}", deth.q_key));
        }
        if let Some(immediate) = headers.immediate {
            facts.push(format!("imm {:#010x}", u32::from_be_bytes(immediate.0)));
        }
        if bth.ack_request {
            facts.push("ack?".to_owned());
        }
        let is_cnp = info.operation == Operation::Cnp;
        if is_cnp {
            facts.push(format!("to QP {:#x}", bth.dest_qp.get()));
        } else if bth.becn {
            facts.push("BECN".to_owned());
        }
        // A CNP has no place in the sequence.
        let psn = (!is_cnp).then_some(bth.psn.get());
        let dest_qp = Some(bth.dest_qp.get());
        Self { class, name, psn, dest_qp, facts }
    }

    /// Returns the label of a message of connection management: what the peer needs of it.
    fn of_management(message: &CmMessage) -> Self {
        let facts = match message {
            CmMessage::Req(it) => vec![
                service(it.service_id),
                format!("QP {:#x}", it.local_qpn.get()),
                format!("PSN {:#08x}", it.starting_psn.get()),
            ],
            CmMessage::Rep(it) => vec![
                format!("QP {:#x}", it.local_qpn.get()),
                format!("PSN {:#08x}", it.starting_psn.get()),
            ],
            CmMessage::Rej(it) => vec![it.reason.to_string()],
            CmMessage::SidrReq(it) => vec![service(it.service_id)],
            _ => Vec::new(),
        };
        let class = match message {
            CmMessage::Req(_) | CmMessage::Dreq(_) | CmMessage::SidrReq(_) => PacketClass::Request,
            CmMessage::Rej(_) => PacketClass::Nak,
            _ => PacketClass::Response,
        };
        let name = format!("CM {}", message.attribute().name());
        let dest_qp = Some(Qpn::GSI.get());
        Self { class, name, psn: None, dest_qp, facts }
    }

    fn read_verdict(
        aeth: Aeth,
        operation: Operation,
        class: PacketClass,
        name: &mut String,
        facts: &mut Vec<String>,
    ) -> PacketClass {
        let is_plain = operation == Operation::Acknowledge;
        match aeth.syndrome {
            Syndrome::Ack { .. } => {
                if is_plain {
                    "ACK".clone_into(name);
                }
                class
            }
            Syndrome::RnrNak { timer } => {
                "RNR NAK".clone_into(name);
                facts.push(format!("wait {:?}", timer.duration()));
                PacketClass::Nak
            }
            Syndrome::Nak(code) => {
                let what = match code {
                    NakCode::PsnSequence => "sequence error".to_owned(),
                    other => other.to_string(),
                };
                *name = format!("NAK {what}");
                PacketClass::Nak
            }
            Syndrome::Reserved(byte) => {
                facts.push(format!("syndrome {byte:#04x}"));
                class
            }
        }
    }

    /// Returns the label as one line: `WRITE First  PSN 100  1024 bytes`. PSNs of a real run are
    /// random, and hexadecimal with `hex_psns`.
    pub fn line(&self, hex_psns: bool) -> String {
        let psn = self.psn.map(|psn| match hex_psns {
            true => format!("PSN {psn:#08x}"),
            false => format!("PSN {psn}"),
        });
        let facts = (!self.facts.is_empty()).then(|| self.facts.join(", "));
        let parts = [Some(self.name.clone()), psn, facts];
        parts.into_iter().flatten().collect::<Vec<_>>().join("  ")
    }
}

/// Returns the port that a service id stands for, or the id.
fn service(id: ServiceId) -> String {
    match id.port() {
        Some((_, port)) => format!("port {port}"),
        None => format!("service {id}"),
    }
}
