//! A parsed packet, as the fast path reports it.

use std::fmt;
use std::net::IpAddr;
use std::ops::Range;

use roce_wire::{BthView, Ecn, Headers, KnownOpcode, MacAddr, Opcode, Psn, Qpn};

use crate::{Finding, FlowContext, IcrcSkipped, RawFrame, Severity};

/// One packet: a frame, or one of the packets of a train in a frame.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Frame that carried the packet.
    pub frame: RawFrame<'a>,
    /// Parsed content.
    pub kind: PacketKind<'a>,
    /// Findings, in the order of the checks.
    pub findings: &'a [Finding],
    /// Connection of the packet, with its state before the packet; `None` unless connections are
    /// followed.
    pub flow: Option<FlowContext>,
}

/// Kind of a packet, with its parsed content.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::large_enum_variant)] // nearly all are the large variant, and none is stored
pub enum PacketKind<'a> {
    /// A RoCE packet.
    Roce(Roce<'a>),
    /// A pause frame of Ethernet.
    Pause(Pause),
    /// Any other frame.
    Other(Other),
}

/// A RoCE packet.
#[derive(Clone, Copy, Debug)]
pub struct Roce<'a> {
    /// Encapsulation.
    pub version: RoceVersion,
    /// Source address; for RoCEv1 the source GID as an address.
    pub source: IpAddr,
    /// Destination address; for RoCEv1 the destination GID as an address.
    pub destination: IpAddr,
    /// UDP source port; 0 for RoCEv1.
    pub source_port: u16,
    /// TOS or traffic class: DSCP and ECN.
    pub traffic_class: u8,
    /// BTH; `None` if the packet is shorter.
    pub bth: Option<BthView<'a>>,
    /// All headers; `None` if the opcode is unknown or a header is incomplete.
    pub headers: Option<Headers>,
    /// Captured payload, without pad.
    pub payload: &'a [u8],
    /// Payload bytes on the wire, without pad.
    pub payload_len: usize,
    /// Result of the ICRC check.
    pub icrc: Icrc,
    /// Result of the UDP checksum check of the frame.
    pub udp_checksum: Checksum,
    /// Position in a train; `None` for a single packet.
    pub train: Option<TrainPlace>,
    /// Offsets of the headers in the frame.
    pub offsets: Offsets,
}

/// Encapsulation of a RoCE packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RoceVersion {
    /// A GRH under an EtherType of its own.
    V1,
    /// IP and UDP.
    V2,
}

/// Offsets of a RoCE packet's headers in bytes from the start of the frame. They may exceed the
/// captured length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offsets {
    /// IP header or GRH.
    pub ip: usize,
    /// UDP header; for RoCEv1 equal to `bth`.
    pub udp: usize,
    /// BTH.
    pub bth: usize,
    /// End of the ICRC.
    pub end: usize,
}

/// Position of a packet in a packet train.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrainPlace {
    /// Index of the packet, from 0.
    pub index: u16,
    /// Packets in the train.
    pub count: u16,
    /// Bytes of each packet but the last, from BTH to ICRC.
    pub segment_len: u16,
}

/// Result of an ICRC check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Icrc {
    /// Correct.
    Right,
    /// Wrong. Values as transmitted, least significant byte first.
    Wrong {
        /// Value in the packet.
        carried: u32,
        /// Correct value.
        expected: u32,
    },
    /// Not checked.
    Unchecked(IcrcSkipped),
}

/// Result of a UDP checksum check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// Zero: the sender computed none.
    None,
    /// Correct.
    Right,
    /// Sum over the pseudo-header alone: captured before the network card completed it, or on a
    /// virtual link that never does.
    Offloaded,
    /// Wrong.
    Wrong {
        /// Value in the packet.
        carried: u16,
        /// Correct value.
        expected: u16,
    },
    /// Not checked: part of the datagram was not captured.
    Unchecked,
}

/// An Ethernet pause frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    /// Sender; `None` if the capture has no Ethernet header.
    pub source: Option<MacAddr>,
    /// Offset of the MAC control frame, which follows the EtherType.
    pub offset: usize,
    /// Request.
    pub kind: PauseKind,
}

/// Request of a pause frame. A quantum is the time of 512 bits on the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PauseKind {
    /// Pauses all traffic; 0 quanta end the pause.
    All {
        /// 0 ..= 65535.
        quanta: u16,
    },
    /// Priority flow control (802.1Qbb): pauses each priority separately.
    Priority {
        /// Bit *i*: the frame applies to priority *i*.
        enabled: u8,
        /// Quanta by priority; 0 ends the pause.
        quanta: [u16; 8],
    },
    /// Any other MAC control frame.
    Unknown {
        /// Opcode.
        opcode: u16,
    },
}

/// A frame without RoCE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Other {
    /// Another protocol above the link.
    EtherType(u16),
    /// Another protocol above IP.
    Protocol {
        /// Source address.
        source: IpAddr,
        /// Destination address.
        destination: IpAddr,
        /// IPv4 protocol, or IPv6 next header.
        protocol: u8,
    },
    /// Another port above UDP.
    Udp {
        /// Source address.
        source: IpAddr,
        /// Destination address.
        destination: IpAddr,
        /// Source port.
        source_port: u16,
        /// Destination port.
        destination_port: u16,
    },
    /// A later fragment of an IP packet.
    Fragment {
        /// Source address.
        source: IpAddr,
        /// Destination address.
        destination: IpAddr,
    },
    /// An unsupported link type.
    Link(u32),
    /// Too short or malformed to identify; a finding has the reason.
    Broken,
}

impl<'a> Packet<'a> {
    /// Returns the RoCE packet, if it is one.
    pub const fn roce(&self) -> Option<&Roce<'a>> {
        match &self.kind {
            PacketKind::Roce(roce) => Some(roce),
            _ => None,
        }
    }

    /// Returns the highest severity of the findings; [`Severity::Info`] without findings.
    pub fn severity(&self) -> Severity {
        self.findings.iter().map(Finding::severity).max().unwrap_or(Severity::Info)
    }
}

impl<'a> Roce<'a> {
    /// Returns the opcode as sent.
    pub fn opcode(&self) -> Option<Opcode> {
        self.bth.map(BthView::opcode)
    }

    /// Returns the opcode if it is defined.
    pub fn known_opcode(&self) -> Option<KnownOpcode> {
        self.opcode().and_then(KnownOpcode::new)
    }

    /// Returns the destination queue pair.
    pub fn dest_qp(&self) -> Option<Qpn> {
        self.bth.map(BthView::dest_qp)
    }

    /// Returns the PSN.
    pub fn psn(&self) -> Option<Psn> {
        self.bth.map(BthView::psn)
    }

    /// Returns the ECN bits of the IP header.
    pub const fn ecn(&self) -> Ecn {
        Ecn::from_traffic_class(self.traffic_class)
    }

    /// Returns the range of captured bytes from BTH to ICRC.
    pub fn range(&self, frame: &RawFrame<'_>) -> Range<usize> {
        let end = self.offsets.end.min(frame.bytes.len());
        self.offsets.bth.min(end)..end
    }
}

/// Protocol without addresses: `ARP`, `TCP`, `UDP 5000 > 53`.
impl fmt::Display for Other {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::EtherType(0x0806) => f.write_str("ARP"),
            Self::EtherType(0x88cc) => f.write_str("LLDP"),
            Self::EtherType(length @ 0..=1500) => write!(f, "802.3 frame of {length} bytes"),
            Self::EtherType(ether_type) => write!(f, "EtherType {ether_type:#06x}"),
            Self::Protocol { protocol: 1, .. } => f.write_str("ICMP"),
            Self::Protocol { protocol: 2, .. } => f.write_str("IGMP"),
            Self::Protocol { protocol: 6, .. } => f.write_str("TCP"),
            Self::Protocol { protocol: 58, .. } => f.write_str("ICMPv6"),
            Self::Protocol { protocol, .. } => write!(f, "IP protocol {protocol}"),
            Self::Udp { source_port, destination_port, .. } => {
                write!(f, "UDP {source_port} > {destination_port}")
            }
            Self::Fragment { .. } => f.write_str("IP fragment"),
            Self::Link(code) => write!(f, "link type {code} is not read"),
            Self::Broken => f.write_str("broken frame"),
        }
    }
}

/// `pause 65535 quanta`, or by priority.
impl fmt::Display for Pause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            PauseKind::All { quanta: 0 } => f.write_str("pause ends"),
            PauseKind::All { quanta } => write!(f, "pause {quanta} quanta"),
            PauseKind::Priority { enabled: 0, .. } => f.write_str("PFC for no priority"),
            PauseKind::Priority { enabled, quanta } => {
                f.write_str("PFC")?;
                let meant =
                    (0u8..8).zip(quanta).filter(|(priority, _)| enabled >> priority & 1 == 1);
                for (priority, quanta) in meant {
                    match quanta {
                        0 => write!(f, " priority {priority} goes on")?,
                        _ => write!(f, " priority {priority} pauses {quanta} quanta")?,
                    }
                }
                Ok(())
            }
            PauseKind::Unknown { opcode } => write!(f, "MAC control opcode {opcode:#06x}"),
        }
    }
}

impl Pause {
    /// Returns true if the frame pauses any traffic.
    pub fn pauses(&self) -> bool {
        match self.kind {
            PauseKind::All { quanta } => quanta > 0,
            PauseKind::Priority { enabled, quanta } => (0u8..8)
                .zip(quanta)
                .any(|(priority, quanta)| enabled >> priority & 1 == 1 && quanta > 0),
            PauseKind::Unknown { .. } => false,
        }
    }
}
