//! Errors of parsing and of sealing.

use core::fmt;

use crate::Opcode;

/// A part of a frame, outermost first.
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
    Feth,
    AtomicEth,
    Aeth,
    AtomicAckEth,
    Deth,
    Immediate,
    InvalidateKey,
    CnpReserved,
    Icrc,
}

/// Too few bytes for a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LenError {
    /// The layer.
    pub layer: Layer,
    /// Bytes that the layer needs.
    pub need: usize,
    /// Bytes available.
    pub have: usize,
    /// Offset of the layer, in bytes from the start of the parsed bytes.
    pub at: usize,
}

impl LenError {
    /// Creates an error at offset 0.
    pub const fn new(layer: Layer, need: usize, have: usize) -> Self {
        Self { layer, need, have, at: 0 }
    }

    /// Adds the length of an outer layer to the offset.
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

/// Reason why received bytes are not a RoCE packet: drop them and count the drop under
/// [`counter`](Self::counter).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The bytes end before a header does, or before a length field says.
    #[error(transparent)]
    Short(#[from] LenError),
    /// Neither IPv4 nor IPv6 in this frame (or, for RoCEv1, no GRH).
    #[error("EtherType {ether_type:#06x} carries no RoCE packet")]
    EtherType {
        /// The innermost EtherType, after VLAN tags.
        ether_type: u16,
    },
    /// More than two VLAN tags.
    #[error("more than two VLAN tags")]
    TooManyVlanTags,
    /// The version nibble disagrees with the EtherType.
    #[error("IP version {version} under the EtherType of another")]
    IpVersion {
        /// The version nibble.
        version: u8,
    },
    /// An IPv4 header length below 5 words.
    #[error("IPv4 header length of {words} words is below 5")]
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
    /// An IPv4 or IPv6 fragment.
    #[error("an IPv4 fragment")]
    Ipv4Fragment,
    /// The IPv4 header checksum is wrong.
    #[error("IPv4 header checksum {carried:#06x}, computed {computed:#06x}")]
    Ipv4Checksum {
        /// Value in the header.
        carried: u16,
        /// Computed value.
        computed: u16,
    },
    /// The IP packet does not carry UDP.
    #[error("IP protocol {protocol} is not UDP")]
    NotUdp {
        /// IPv4 protocol, or IPv6 next header.
        protocol: u8,
    },
    /// The UDP destination port is not 4791.
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
        /// Length according to the IP header.
        ip: usize,
    },
    /// The UDP checksum is neither zero nor right. In a capture made at the sender it may be partial:
    /// see [`ParseOptions::udp_checksum_offloaded`](crate::ParseOptions::udp_checksum_offloaded).
    #[error("UDP checksum {carried:#06x} is wrong")]
    UdpChecksum {
        /// Value in the header.
        carried: u16,
    },
    /// The next header of a RoCEv1 GRH is not an InfiniBand packet.
    #[error("GRH next header {next_header:#04x} is no InfiniBand transport")]
    GrhNextHeader {
        /// Value in the header.
        next_header: u8,
    },
    /// The BTH version is not 0.
    #[error("transport header version {0}")]
    BthVersion(u8),
    /// The opcode is not in the table.
    #[error("unknown opcode {:#04x}", .0.0)]
    UnknownOpcode(Opcode),
    /// The pad count exceeds the bytes after the headers.
    #[error("{pad} pad bytes, {have} bytes after the headers")]
    PadExceedsPayload {
        /// Bytes of pad, 1 ..= 3.
        pad: usize,
        /// Bytes of payload and pad together.
        have: usize,
    },
    /// The length of payload and pad is not a multiple of 4.
    #[error("payload and pad of {len} bytes are no multiple of 4")]
    Unaligned {
        /// Bytes of payload and pad together.
        len: usize,
    },
    /// Payload on an opcode that carries none.
    #[error("{len} bytes of payload on opcode {:#04x}, which carries none", .opcode.0)]
    UnexpectedPayload {
        /// The opcode.
        opcode: Opcode,
        /// Bytes after the headers.
        len: usize,
    },
    /// The segments of a train are too short for a packet.
    #[error("a train of {segment_len}-byte segments cannot hold packets")]
    SegmentLen {
        /// UDP payload bytes per packet.
        segment_len: usize,
    },
}

impl WireError {
    /// Returns the stable name of the counter of such drops.
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

    /// Adds the length of an outer layer to the offset of a length error.
    #[must_use]
    pub const fn beneath(self, outer: usize) -> Self {
        match self {
            Self::Short(error) => Self::Short(error.beneath(outer)),
            other => other,
        }
    }
}

/// The ICRC of a packet is wrong: the packet is corrupted, or its sender computes ICRCs otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("ICRC {carried:#010x}, computed {computed:#010x}")]
pub struct BadIcrc {
    /// Computed value.
    pub computed: u32,
    /// Value in the packet.
    pub carried: u32,
}

impl BadIcrc {
    /// Stable name of the counter of such drops.
    pub const COUNTER: &'static str = "drop_icrc";
}

/// Reason why a frame could not be sealed; an error of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SealError {
    /// One address is IPv4, the other IPv6.
    #[error("source and destination are of different IP versions: use one version")]
    MixedFamilies,
    /// A segment is too short for a BTH and an ICRC.
    #[error("a segment of {len} bytes is too short for a packet: make it at least 16 bytes long")]
    SegmentTooShort {
        /// Bytes of the segment.
        len: usize,
    },
    /// There is no packet to seal: nothing follows the headroom, or none was written.
    #[error("the frame has no packet behind its outer headers: write one before sealing")]
    NoPacket,
    /// The train exceeds the length fields of IP.
    #[error("a train of {len} bytes does not fit one IP packet: make it shorter")]
    TrainTooLong {
        /// Bytes of all segments together.
        len: usize,
    },
    /// The frame is shorter than the outer headers.
    #[error(
        "a frame of {have} bytes is shorter than its {need} bytes of outer headers: make it longer"
    )]
    NoHeadroom {
        /// Bytes of the outer headers.
        need: usize,
        /// Bytes of the frame.
        have: usize,
    },
}
