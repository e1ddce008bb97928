//! Errors whose fault lies in the bytes, and those of a caller that seals.

use core::fmt;

use crate::Opcode;

/// What a piece of a frame is called, outermost first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum Layer {
    Ethernet,
    Vlan,
    Ipv4,
    Ipv6,
    Grh,
    Udp,
    Bth,
    Reth,
    AtomicEth,
    Aeth,
    AtomicAckEth,
    Deth,
    Immediate,
    InvalidateKey,
    CnpReserved,
    Icrc,
}

/// Too few bytes: says which layer, how many it needs, how many there were, where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LenError {
    /// The layer that did not fit.
    pub layer: Layer,
    /// Bytes that `layer` needs.
    pub need: usize,
    /// Bytes that were left.
    pub have: usize,
    /// Where `layer` starts, in bytes from the start of what was parsed.
    pub at: usize,
}

impl LenError {
    /// An error at the start of what was parsed.
    pub const fn new(layer: Layer, need: usize, have: usize) -> Self {
        Self { layer, need, have, at: 0 }
    }

    /// Each outer layer adds its own length while the error climbs out.
    #[must_use]
    pub const fn beneath(mut self, outer: usize) -> Self {
        self.at += outer;
        self
    }

    /// Splits `N` bytes off the front of `bytes` for `layer`.
    pub(crate) const fn split<const N: usize>(
        layer: Layer,
        bytes: &[u8],
    ) -> Result<(&[u8; N], &[u8]), Self> {
        match bytes.split_first_chunk() {
            Some(parts) => Ok(parts),
            None => Err(Self::new(layer, N, bytes.len())),
        }
    }
}

impl fmt::Display for LenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { layer, need, have, at } = self;
        write!(f, "{layer:?} at byte {at} needs {need} bytes, {have} left")
    }
}

impl core::error::Error for LenError {}

/// Why bytes from the network are no RoCE packet. The fault is the bytes' alone:
/// the only thing to do is to drop them and count the drop under
/// [`counter`](Self::counter).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// A header, or what a length field promised, did not fit in the bytes at hand.
    #[error(transparent)]
    Short(#[from] LenError),
    /// Neither IPv4 nor IPv6 in this frame (or, for RoCEv1, no GRH).
    #[error("EtherType {ether_type:#06x} carries no RoCE packet")]
    EtherType {
        /// The innermost EtherType, after VLAN tags.
        ether_type: u16,
    },
    /// A third VLAN tag: two are the most that are read.
    #[error("more than two VLAN tags")]
    TooManyVlanTags,
    /// The version nibble disagrees with the EtherType.
    #[error("IP version {version} under the EtherType of another")]
    IpVersion {
        /// The nibble as it stands.
        version: u8,
    },
    /// An IPv4 header length below 5 words.
    #[error("IPv4 header length of {words} words is impossible")]
    Ipv4HeaderLength {
        /// 32-bit words, 0 ..= 4.
        words: u8,
    },
    /// IPv4 options: the ICRC is not defined over them.
    #[error("IPv4 options in a header of {words} words")]
    Ipv4Options {
        /// 32-bit words, 6 ..= 15.
        words: u8,
    },
    /// A fragment: only whole packets can be checked.
    #[error("an IPv4 fragment")]
    Ipv4Fragment,
    /// The IPv4 header does not sum up to its checksum.
    #[error("IPv4 header checksum {carried:#06x}, computed {computed:#06x}")]
    Ipv4Checksum {
        /// As it stands in the header.
        carried: u16,
        /// As it should stand.
        computed: u16,
    },
    /// The IP packet carries something else than UDP.
    #[error("IP protocol {protocol} is not UDP")]
    NotUdp {
        /// IPv4 protocol, or IPv6 next header.
        protocol: u8,
    },
    /// A UDP packet for another port than 4791.
    #[error("UDP port {port} is not RoCE's")]
    UdpPort {
        /// The destination port.
        port: u16,
    },
    /// The UDP length is not the length of the IP payload.
    #[error("UDP length {udp} in an IP payload of {ip} bytes")]
    UdpLength {
        /// The UDP length field, header included.
        udp: u16,
        /// What the IP header promises.
        ip: usize,
    },
    /// A UDP checksum that is not zero and not right.
    #[error("UDP checksum {carried:#06x} is wrong")]
    UdpChecksum {
        /// As it stands in the header.
        carried: u16,
    },
    /// A RoCEv1 header that announces something else than an InfiniBand packet.
    #[error("GRH next header {next_header:#04x} is no InfiniBand transport")]
    GrhNextHeader {
        /// As it stands in the header.
        next_header: u8,
    },
    /// A BTH of a version that nobody has defined.
    #[error("transport header version {0}")]
    BthVersion(u8),
    /// An opcode without a row in the table.
    #[error("unknown opcode {:#04x}", .0.0)]
    UnknownOpcode(Opcode),
    /// The pad count is larger than what follows the headers.
    #[error("{pad} pad bytes, {have} bytes after the headers")]
    PadExceedsPayload {
        /// Bytes of pad, 1 ..= 3.
        pad: usize,
        /// Bytes of payload and pad together.
        have: usize,
    },
    /// Payload and pad together are no multiple of four bytes.
    #[error("payload and pad of {len} bytes are no multiple of 4")]
    Unaligned {
        /// Bytes of payload and pad together.
        len: usize,
    },
    /// An opcode that carries no payload, with payload.
    #[error("{len} bytes of payload on opcode {:#04x}, which carries none", .opcode.0)]
    UnexpectedPayload {
        /// The opcode that carries none.
        opcode: Opcode,
        /// Bytes after the headers.
        len: usize,
    },
    /// A train cut in pieces too small for any packet.
    #[error("a train of {segment_len}-byte segments cannot hold packets")]
    SegmentLen {
        /// UDP payload bytes per packet.
        segment_len: usize,
    },
}

impl WireError {
    /// The name of the counter that a drop for this reason belongs under. Stable.
    pub const fn counter(&self) -> &'static str {
        match self {
            Self::Short(error) => match error.layer {
                Layer::Ethernet => "drop_short_ethernet",
                Layer::Vlan => "drop_short_vlan",
                Layer::Ipv4 => "drop_short_ipv4",
                Layer::Ipv6 => "drop_short_ipv6",
                Layer::Grh => "drop_short_grh",
                Layer::Udp => "drop_short_udp",
                Layer::Bth => "drop_short_bth",
                Layer::Icrc => "drop_short_icrc",
                _ => "drop_short_extension",
            },
            Self::EtherType { .. } => "drop_ether_type",
            Self::TooManyVlanTags => "drop_vlan_tags",
            Self::IpVersion { .. } => "drop_ip_version",
            Self::Ipv4HeaderLength { .. } => "drop_ipv4_header_length",
            Self::Ipv4Options { .. } => "drop_ipv4_options",
            Self::Ipv4Fragment => "drop_ipv4_fragment",
            Self::Ipv4Checksum { .. } => "drop_ipv4_checksum",
            Self::NotUdp { .. } => "drop_not_udp",
            Self::UdpPort { .. } => "drop_udp_port",
            Self::UdpLength { .. } => "drop_udp_length",
            Self::UdpChecksum { .. } => "drop_udp_checksum",
            Self::GrhNextHeader { .. } => "drop_grh_next_header",
            Self::BthVersion(_) => "drop_bth_version",
            Self::UnknownOpcode(_) => "drop_unknown_opcode",
            Self::PadExceedsPayload { .. } => "drop_pad",
            Self::Unaligned { .. } => "drop_unaligned",
            Self::UnexpectedPayload { .. } => "drop_unexpected_payload",
            Self::SegmentLen { .. } => "drop_segment_len",
        }
    }

    /// Every name that [`counter`](Self::counter) and [`BadIcrc::COUNTER`] can give, so
    /// that a table of counters can be made before the first drop.
    pub const COUNTERS: [&'static str; 28] = [
        "drop_short_ethernet",
        "drop_short_vlan",
        "drop_short_ipv4",
        "drop_short_ipv6",
        "drop_short_grh",
        "drop_short_udp",
        "drop_short_bth",
        "drop_short_icrc",
        "drop_short_extension",
        "drop_ether_type",
        "drop_vlan_tags",
        "drop_ip_version",
        "drop_ipv4_header_length",
        "drop_ipv4_options",
        "drop_ipv4_fragment",
        "drop_ipv4_checksum",
        "drop_not_udp",
        "drop_udp_port",
        "drop_udp_length",
        "drop_udp_checksum",
        "drop_grh_next_header",
        "drop_bth_version",
        "drop_unknown_opcode",
        "drop_pad",
        "drop_unaligned",
        "drop_unexpected_payload",
        "drop_segment_len",
        BadIcrc::COUNTER,
    ];

    /// A length error climbs out of the layers around it; the others carry no place.
    #[must_use]
    pub const fn beneath(self, outer: usize) -> Self {
        match self {
            Self::Short(error) => Self::Short(error.beneath(outer)),
            other => other,
        }
    }
}

/// The ICRC of a packet does not fit its bytes: it was damaged on the way, or made by
/// somebody who does not know the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("ICRC {carried:#010x}, computed {computed:#010x}")]
pub struct BadIcrc {
    /// What the bytes ask for.
    pub computed: u32,
    /// What stands behind them.
    pub carried: u32,
}

impl BadIcrc {
    /// The name of the counter that such a drop belongs under. Stable.
    pub const COUNTER: &'static str = "drop_icrc";
}

/// Why a frame could not be sealed. The fault is the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SealError {
    /// One address is IPv4, the other IPv6.
    #[error("source and destination are of different IP versions: give two of one version")]
    MixedFamilies,
    /// A segment has no room for a BTH and an ICRC.
    #[error("a segment of {len} bytes cannot hold a packet: 16 bytes are the least")]
    SegmentTooShort {
        /// Bytes of the segment.
        len: usize,
    },
    /// The train is longer than the length fields of IP can say.
    #[error("a train of {len} bytes does not fit one IP packet: make it shorter")]
    TrainTooLong {
        /// Bytes of all segments together.
        len: usize,
    },
    /// The frame is shorter than the outer headers.
    #[error("a frame of {have} bytes has no room for {need} bytes of outer headers")]
    NoHeadroom {
        /// Bytes that the outer headers take.
        need: usize,
        /// Bytes of the frame.
        have: usize,
    },
}
