//! A received Ethernet frame: the headers before the first BTH.

mod datagram;
mod fast_path;

use core::net::IpAddr;

use etherparse::{
    IpNumber, Ipv4HeaderSlice, Ipv6HeaderSlice, UdpHeaderSlice, checksum::Sum16BitWords, err,
};

use self::fast_path::{FastPath, USUAL_LEN, word};
use crate::{
    Layer, LenError, MacAddr, ROCE_V2_PORT, VlanTag, WireError,
    icrc::{IPV4_LEN, IPV6_LEN, IcrcPseudoHeader, UDP_LEN},
    link::{self, Link},
};

/// A RoCEv2 frame with checked outer headers; its packets are unchecked.
///
/// The IPv4 header checksum and a nonzero UDP checksum have been verified. Ethernet padding after
/// the IP packet is ignored.
///
/// ```
/// use roce_wire::{Frame, Layer, LenError, WireError};
/// let short = LenError { layer: Layer::Ethernet, need: 14, have: 3, at: 0 };
/// assert_eq!(Frame::parse(&[1, 2, 3]).unwrap_err(), WireError::Short(short));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    link: Link,
    ip: Ip,
    source_port: u16,
    udp_checksum: u16,
    payload: &'a [u8],
    payload_offset: usize,
    pub(crate) covered: IcrcPseudoHeader,
}

/// The fields of an IPv4 or IPv6 header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ip {
    source: IpAddr,
    destination: IpAddr,
    traffic_class: u8,
    hop_limit: u8,
    flow_label: u32,
    identification: Option<u16>,
}

/// Options of [`Frame::parse_with`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ParseOptions {
    /// The UDP checksum is partial and is not verified: the frame is a train, or never crossed a
    /// wire, and holds only the pseudo-header's sum.
    pub udp_checksum_offloaded: bool,
}

/// Explicit congestion notification: the low two bits of TOS or traffic class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ecn {
    /// Not ECN-capable.
    NotCapable,
    /// ECN-capable, code point 1.
    Capable1,
    /// ECN-capable, code point 0.
    Capable0,
    /// Congestion experienced.
    CongestionExperienced,
}

impl<'a> Frame<'a> {
    /// Parses the outer headers of a frame that crossed a wire. A capture made at the sender has
    /// frames that did not: read those by [`parse_with`](Self::parse_with).
    ///
    /// Time O(1), or O(length) with a UDP checksum; no allocation.
    ///
    /// # Errors
    /// [`WireError`] names the short or invalid header. IPv4 options and fragments are errors.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        Self::parse_with(bytes, ParseOptions::default())
    }

    /// Parses the outer headers of a frame.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    #[inline]
    pub fn parse_with(bytes: &'a [u8], options: ParseOptions) -> Result<Self, WireError> {
        match FastPath::of(bytes, options.udp_checksum_offloaded) {
            Some(path) => Ok(Self::of_fast_path(path)),
            None => Self::parse_any(bytes, options),
        }
    }

    /// Parses a frame on the fast path.
    #[inline]
    fn of_fast_path(path: FastPath<'a>) -> Self {
        let FastPath { link, header, udp, payload } = path;
        let address = |at: usize| -> IpAddr {
            [header[at], header[at + 1], header[at + 2], header[at + 3]].into()
        };
        let ip = Ip {
            source: address(12),
            destination: address(16),
            traffic_class: header[1],
            hop_limit: header[8],
            flow_label: 0,
            identification: Some(word(header, 4)),
        };
        Self {
            link,
            ip,
            source_port: word(udp, 0),
            udp_checksum: word(udp, 6),
            payload,
            payload_offset: USUAL_LEN,
            covered: IcrcPseudoHeader::ipv4(header, udp),
        }
    }
    fn parse_any(bytes: &'a [u8], options: ParseOptions) -> Result<Self, WireError> {
        let (link, network) = Link::split(bytes)?;
        let ip_offset = bytes.len() - network.len();
        let (ip, header_len, datagram) = match link.ether_type {
            link::IPV4 => Ip::split_v4(network),
            link::IPV6 => Ip::split_v6(network),
            ether_type => Err(WireError::EtherType { ether_type }),
        }
        .map_err(|error| error.beneath(ip_offset))?;

        let udp_offset = ip_offset + header_len;
        let udp = UdpHeaderSlice::from_slice(datagram)
            .map_err(|_| LenError::new(Layer::Udp, UDP_LEN, datagram.len()).beneath(udp_offset))?;
        if udp.destination_port() != ROCE_V2_PORT {
            return Err(WireError::UdpPort { port: udp.destination_port() });
        }
        if usize::from(udp.length()) != datagram.len() {
            return Err(WireError::UdpLength { udp: udp.length(), ip: datagram.len() });
        }
        //= rule wire-udp-checksum: RoCEv2, clause not known; rxe_net.c: prepare_udp_hdr
        //# The UDP checksum may be zero over IPv6, too. One that is not zero is checked.
        // Zero means no checksum, over IPv6, too: RoCE has the ICRC.
        let carried = udp.checksum();
        if carried != 0 && !options.udp_checksum_offloaded && !ip.checksum_is_right(datagram) {
            return Err(WireError::UdpChecksum { carried });
        }

        let (udp_bytes, payload) = LenError::split(Layer::Udp, datagram)?;
        let covered = match ip.source {
            IpAddr::V4(_) => {
                IcrcPseudoHeader::ipv4(LenError::split(Layer::Ipv4, network)?.0, udp_bytes)
            }
            IpAddr::V6(_) => {
                IcrcPseudoHeader::ipv6(LenError::split(Layer::Ipv6, network)?.0, udp_bytes)
            }
        };
        Ok(Self {
            link,
            ip,
            source_port: udp.source_port(),
            udp_checksum: carried,
            payload,
            payload_offset: udp_offset + UDP_LEN,
            covered,
        })
    }

    /// Source MAC address.
    pub const fn source_mac(&self) -> MacAddr {
        self.link.source
    }

    /// Destination MAC address.
    pub const fn destination_mac(&self) -> MacAddr {
        self.link.destination
    }

    /// VLAN tags, outermost first; at most two.
    pub fn vlans(&self) -> &[VlanTag] {
        self.link.vlans()
    }

    /// Source address.
    pub const fn source(&self) -> IpAddr {
        self.ip.source
    }

    /// Destination address.
    pub const fn destination(&self) -> IpAddr {
        self.ip.destination
    }

    /// TOS (IPv4) or traffic class (IPv6).
    pub const fn traffic_class(&self) -> u8 {
        self.ip.traffic_class
    }

    /// The ECN bits of [`traffic_class`](Self::traffic_class).
    pub const fn ecn(&self) -> Ecn {
        Ecn::from_traffic_class(self.ip.traffic_class)
    }

    /// TTL (IPv4) or hop limit (IPv6).
    pub const fn hop_limit(&self) -> u8 {
        self.ip.hop_limit
    }

    /// IPv6 flow label, 20 bits; 0 in IPv4.
    pub const fn flow_label(&self) -> u32 {
        self.ip.flow_label
    }

    /// IPv4 identification, that of the first packet in a train; `None` in IPv6.
    pub const fn identification(&self) -> Option<u16> {
        self.ip.identification
    }

    /// UDP source port.
    pub const fn source_port(&self) -> u16 {
        self.source_port
    }

    /// The carried UDP checksum.
    pub const fn udp_checksum(&self) -> u16 {
        self.udp_checksum
    }

    /// From the first byte of the first BTH to the last byte of the last ICRC.
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Offset of [`payload`](Self::payload) in the frame, in bytes.
    pub const fn payload_offset(&self) -> usize {
        self.payload_offset
    }
}

impl Ip {
    /// Returns the header, its length, and the IP payload without Ethernet padding.
    fn split_v4(bytes: &[u8]) -> Result<(Self, usize, &[u8]), WireError> {
        use err::ipv4::{HeaderError, HeaderSliceError};

        let header = Ipv4HeaderSlice::from_slice(bytes).map_err(|error| match error {
            HeaderSliceError::Len(len) => {
                LenError::new(Layer::Ipv4, len.required_len, len.len).into()
            }
            HeaderSliceError::Content(HeaderError::UnexpectedVersion { version_number }) => {
                WireError::IpVersion { version: version_number }
            }
            HeaderSliceError::Content(HeaderError::HeaderLengthSmallerThanHeader { ihl }) => {
                WireError::Ipv4HeaderLength { words: ihl }
            }
        })?;
        //= rule wire-ipv4-options-dropped: rxe_icrc.c: rxe_icrc_hdr
        //# The IPv4 header has no options: the ICRC is defined over 20 bytes of it.
        if header.ihl() != 5 {
            return Err(WireError::Ipv4Options { words: header.ihl() });
        }
        if Sum16BitWords::new().add_slice(header.slice()).ones_complement() != 0 {
            return Err(WireError::Ipv4Checksum {
                carried: header.header_checksum(),
                computed: header.to_header().calc_header_checksum(),
            });
        }
        //= rule wire-fragment-dropped: not known
        //# A fragment is dropped.
        if header.is_fragmenting_payload() {
            return Err(WireError::Ipv4Fragment);
        }
        if header.protocol() != IpNumber::UDP {
            return Err(WireError::NotUdp { protocol: header.protocol().0 });
        }
        let total_len = usize::from(header.total_len());
        if total_len < IPV4_LEN {
            return Err(LenError::new(Layer::Ipv4, IPV4_LEN, total_len).into());
        }
        let packet =
            bytes.get(..total_len).ok_or(LenError::new(Layer::Ipv4, total_len, bytes.len()))?;
        let ip = Self {
            source: header.source_addr().into(),
            destination: header.destination_addr().into(),
            traffic_class: bytes[1],
            hop_limit: header.ttl(),
            flow_label: 0,
            identification: Some(header.identification()),
        };
        Ok((ip, IPV4_LEN, &packet[IPV4_LEN..]))
    }

    fn split_v6(bytes: &[u8]) -> Result<(Self, usize, &[u8]), WireError> {
        use err::ipv6::{HeaderError, HeaderSliceError};

        let header = Ipv6HeaderSlice::from_slice(bytes).map_err(|error| match error {
            HeaderSliceError::Len(len) => {
                LenError::new(Layer::Ipv6, len.required_len, len.len).into()
            }
            HeaderSliceError::Content(HeaderError::UnexpectedVersion { version_number }) => {
                WireError::IpVersion { version: version_number }
            }
        })?;
        if header.next_header() != IpNumber::UDP {
            return Err(WireError::NotUdp { protocol: header.next_header().0 });
        }
        let total_len = IPV6_LEN + usize::from(header.payload_length());
        let packet =
            bytes.get(..total_len).ok_or(LenError::new(Layer::Ipv6, total_len, bytes.len()))?;
        let ip = Self {
            source: header.source_addr().into(),
            destination: header.destination_addr().into(),
            traffic_class: header.traffic_class(),
            hop_limit: header.hop_limit(),
            flow_label: header.flow_label().value(),
            identification: None,
        };
        Ok((ip, IPV6_LEN, &packet[IPV6_LEN..]))
    }

    /// Returns true if the checksum of a UDP datagram between these addresses is right.
    fn checksum_is_right(&self, datagram: &[u8]) -> bool {
        let pseudo_header = pseudo_header_sum(self.source, self.destination, datagram.len());
        pseudo_header.add_slice(datagram).ones_complement() == 0
    }
}

impl Ecn {
    /// The low two bits of TOS or traffic class.
    //= rule wire-ecn: RFC 3168 section 5
    //# The low two bits of TOS or traffic class are: not ECN-capable 0, capable 1 and 2, congestion
    //# experienced 3.
    pub const fn from_traffic_class(byte: u8) -> Self {
        match byte & 0b11 {
            0b00 => Self::NotCapable,
            0b01 => Self::Capable1,
            0b10 => Self::Capable0,
            _ => Self::CongestionExperienced,
        }
    }
}

/// Returns the sum over the UDP pseudo-header.
fn pseudo_header_sum(source: IpAddr, destination: IpAddr, len: usize) -> Sum16BitWords {
    let mut sum = Sum16BitWords::new();
    for address in [source, destination] {
        sum = match address {
            IpAddr::V4(v4) => sum.add_4bytes(v4.octets()),
            IpAddr::V6(v6) => sum.add_16bytes(v6.octets()),
        };
    }
    // At most 65535 bytes, as the length comes from an IP header.
    sum.add_2bytes([0, IpNumber::UDP.0]).add_2bytes((len as u16).to_be_bytes())
}
