//! One packet, taken apart: what the fast path knows of it without building a tree.

use std::fmt;
use std::net::IpAddr;
use std::ops::Range;

use roce_wire::{BthView, Ecn, Headers, KnownOpcode, MacAddr, Opcode, Psn, Qpn};

use crate::{Finding, FlowContext, IcrcSkipped, RawFrame, Severity};

/// One packet: a frame, or one of the packets of a train in a frame.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// The frame that it came in.
    pub frame: RawFrame<'a>,
    /// What it is.
    pub kind: PacketKind<'a>,
    /// What was found about it, in the order in which it was found.
    pub findings: &'a [Finding],
    /// Which connection it belongs to, and what was known of that before it came; `None` unless
    /// connections are followed.
    pub flow: Option<FlowContext>,
}

/// What a packet is.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::large_enum_variant)] // nearly all are the large one, and none is kept
pub enum PacketKind<'a> {
    /// A RoCE packet.
    Roce(Roce<'a>),
    /// A pause frame of Ethernet.
    Pause(Pause),
    /// Something else.
    Other(Other),
}

/// A RoCE packet.
#[derive(Clone, Copy, Debug)]
pub struct Roce<'a> {
    /// How it is wrapped.
    pub version: RoceVersion,
    /// Who sent it; for RoCEv1 the GID as an address.
    pub source: IpAddr,
    /// Whom it was sent to.
    pub destination: IpAddr,
    /// UDP source port; 0 for RoCEv1.
    pub source_port: u16,
    /// TOS or traffic class: DSCP and ECN.
    pub traffic_class: u8,
    /// Its BTH as it stands; `None` where not even that is whole.
    pub bth: Option<BthView<'a>>,
    /// All headers; `None` where the opcode is unknown or a header is not whole.
    pub headers: Option<Headers>,
    /// What it carries, without pad, as far as it was captured.
    pub payload: &'a [u8],
    /// Bytes that it carried on the wire, without pad.
    pub payload_len: usize,
    /// The ICRC.
    pub icrc: Icrc,
    /// The UDP checksum of the frame.
    pub udp_checksum: Checksum,
    /// Its place in a train.
    pub train: Option<TrainPlace>,
    /// Where its parts stand in the frame.
    pub offsets: Offsets,
}

/// How a RoCE packet is wrapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RoceVersion {
    /// A GRH in an EtherType of its own.
    V1,
    /// IP and UDP.
    V2,
}

/// Where the parts of a RoCE packet stand, in bytes from the start of the frame. What was not
/// captured may lie beyond its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offsets {
    /// The IP header, or the GRH.
    pub ip: usize,
    /// The UDP header; for RoCEv1 where the BTH is.
    pub udp: usize,
    /// The BTH.
    pub bth: usize,
    /// Behind the ICRC.
    pub end: usize,
}

/// A packet's place in its train.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrainPlace {
    /// From 0.
    pub index: u16,
    /// Packets in the train.
    pub count: u16,
    /// Bytes of each but the last, from BTH to ICRC.
    pub segment_len: u16,
}

/// What became of checking an ICRC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Icrc {
    /// It is right.
    Right,
    /// It is wrong. Numbers as sent least significant byte first.
    Wrong {
        /// As it stands.
        carried: u32,
        /// As it should stand.
        expected: u32,
    },
    /// It could not be checked.
    Unchecked(IcrcSkipped),
}

/// What became of checking an IP or UDP checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// Zero: there is none.
    None,
    /// It is right.
    Right,
    /// The sum over the pseudo-header alone: a network card was to finish it, or nobody, since
    /// the frame never met a wire.
    Offloaded,
    /// It is wrong.
    Wrong {
        /// As it stands.
        carried: u16,
        /// As it should stand.
        expected: u16,
    },
    /// It could not be checked: not all it covers was captured.
    Unchecked,
}

/// An Ethernet pause frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    /// Who asks; `None` where the capture has no Ethernet header.
    pub source: Option<MacAddr>,
    /// Where the MAC control frame starts, behind the EtherType.
    pub offset: usize,
    /// What it asks.
    pub kind: PauseKind,
}

/// What a pause frame asks. A quantum is the time of 512 bits on that link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PauseKind {
    /// Send nothing for so many quanta; 0: go on.
    All {
        /// 0 ..= 65535.
        quanta: u16,
    },
    /// Priority flow control (802.1Qbb): each priority on its own.
    Priority {
        /// Bit *i*: priority *i* is meant.
        enabled: u8,
        /// By priority; 0: go on.
        quanta: [u16; 8],
    },
    /// A MAC control frame that asks something else.
    Unknown {
        /// Its opcode.
        opcode: u16,
    },
}

/// A frame that carries no RoCE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Other {
    /// Another protocol above the link.
    EtherType(u16),
    /// Another protocol above IP.
    Protocol {
        /// Who sent it.
        source: IpAddr,
        /// Whom it was sent to.
        destination: IpAddr,
        /// IPv4 protocol, or IPv6 next header.
        protocol: u8,
    },
    /// Another port above UDP.
    Udp {
        /// Who sent it.
        source: IpAddr,
        /// Whom it was sent to.
        destination: IpAddr,
        /// From this port.
        source_port: u16,
        /// To this port.
        destination_port: u16,
    },
    /// A later fragment of an IP packet.
    Fragment {
        /// Who sent it.
        source: IpAddr,
        /// Whom it was sent to.
        destination: IpAddr,
    },
    /// A link that is not read here.
    Link(u32),
    /// So short or wrong that it cannot be said what it is; a finding says more.
    Broken,
}

impl<'a> Packet<'a> {
    /// The RoCE packet, if it is one.
    pub const fn roce(&self) -> Option<&Roce<'a>> {
        match &self.kind {
            PacketKind::Roce(roce) => Some(roce),
            _ => None,
        }
    }

    /// The worst that was found; [`Severity::Info`] where nothing was.
    pub fn severity(&self) -> Severity {
        self.findings.iter().map(Finding::severity).max().unwrap_or(Severity::Info)
    }
}

impl<'a> Roce<'a> {
    /// The opcode as sent.
    pub fn opcode(&self) -> Option<Opcode> {
        self.bth.map(BthView::opcode)
    }

    /// The opcode, if the table has it.
    pub fn known_opcode(&self) -> Option<KnownOpcode> {
        self.opcode().and_then(KnownOpcode::new)
    }

    /// The queue pair that it is for.
    pub fn dest_qp(&self) -> Option<Qpn> {
        self.bth.map(BthView::dest_qp)
    }

    /// Its place in the sequence.
    pub fn psn(&self) -> Option<Psn> {
        self.bth.map(BthView::psn)
    }

    /// The congestion bits of the IP header.
    pub const fn ecn(&self) -> Ecn {
        Ecn::from_traffic_class(self.traffic_class)
    }

    /// Its bytes in the frame, from BTH to ICRC, as far as they were captured.
    pub fn range(&self, frame: &RawFrame<'_>) -> Range<usize> {
        let end = self.offsets.end.min(frame.bytes.len());
        self.offsets.bth.min(end)..end
    }
}

/// What it is, without addresses: `ARP`, `TCP`, `UDP 5000 > 53`.
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
    /// Does it hold anybody up?
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
