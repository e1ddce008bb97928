//! Parses and checks the headers before the first BTH: link, IP, UDP.
//!
//! An endpoint drops malformed frames (`roce_wire::Frame`). The dissector parses them as far as
//! possible and reports findings.

use std::net::IpAddr;

use etherparse::{
    IpNumber, Ipv4HeaderSlice, Ipv6FragmentHeaderSlice, Ipv6HeaderSlice, Ipv6RawExtHeaderSlice,
    checksum::Sum16BitWords, err,
};
use roce_wire::{GRH_LEN, Grh, Layer, LenError, ROCE_V1_ETHER_TYPE, ROCE_V2_PORT, WireError};

use crate::link::{self, Link};
use crate::{Checksum, Finding, IcrcSkipped, LinkType, Other, Pause, RawFrame, RoceVersion, pause};

/// Parsed outer headers of a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Outer<'a> {
    Roce(RoceFrame<'a>),
    Pause(Pause),
    Other(Other),
}

/// A RoCE frame: one packet or a train.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoceFrame<'a> {
    pub(crate) version: RoceVersion,
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) source_port: u16,
    pub(crate) traffic_class: u8,
    /// IPv4 identification; 0 for IPv6.
    pub(crate) identification: u16,
    pub(crate) udp_checksum: Checksum,
    pub(crate) ip_offset: usize,
    pub(crate) udp_offset: usize,
    pub(crate) bth_offset: usize,
    /// IP header or GRH without extensions. The ICRC covers it and the UDP header.
    pub(crate) ip: &'a [u8],
    pub(crate) udp: Option<&'a [u8; 8]>,
    /// Reason why the ICRC cannot be checked.
    pub(crate) no_icrc: Option<IcrcSkipped>,
    /// Captured bytes from the first BTH to the end of the last ICRC.
    pub(crate) bytes: &'a [u8],
    /// Length of that range on the wire.
    pub(crate) len: usize,
}

/// Parsed IP header.
struct Network {
    source: IpAddr,
    destination: IpAddr,
    traffic_class: u8,
    identification: u16,
    protocol: u8,
    /// Bytes of header and extensions.
    header_len: usize,
    /// Bytes of the whole IP packet on the wire.
    len: usize,
    /// Bytes of the header alone, which the ICRC covers.
    base_len: usize,
    fragment: Fragment,
    no_icrc: Option<IcrcSkipped>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fragment {
    Not,
    First,
    Later,
}

impl<'a> Outer<'a> {
    /// Parses the outer headers and adds errors to `findings`.
    pub(crate) fn parse(frame: &RawFrame<'a>, findings: &mut Vec<Finding>) -> Self {
        if frame.is_truncated() {
            findings.push(Finding::Truncated {
                captured: frame.bytes.len() as u32,
                original: frame.original_len,
            });
        }
        let link = match frame.link {
            LinkType::Other(code) => return Self::Other(Other::Link(code)),
            kind => match Link::parse(kind, frame.bytes) {
                Ok(link) => link,
                Err(error) => return broken(error, findings),
            },
        };
        let wire_len = frame.bytes.len().max(frame.original_len as usize);
        let parsed = match link.ether_type {
            link::IPV4 => Network::parse_v4(frame.bytes, wire_len, link.len, findings),
            link::IPV6 => Network::parse_v6(frame.bytes, wire_len, link.len, findings),
            ROCE_V1_ETHER_TYPE => return parse_v1(frame.bytes, wire_len, link.len, findings),
            link::MAC_CONTROL => {
                let pause = pause::parse(frame.bytes, &link, findings);
                return pause.map_or(Self::Other(Other::Broken), Self::Pause);
            }
            ether_type => return Self::Other(Other::EtherType(ether_type)),
        };
        match parsed {
            Ok(network) => network.above(frame.bytes, link.len, findings),
            Err(error) => broken(error, findings),
        }
    }
}

fn broken<'a>(error: WireError, findings: &mut Vec<Finding>) -> Outer<'a> {
    findings.push(Finding::Wire(error));
    Outer::Other(Other::Broken)
}

fn short(layer: Layer, need: usize, have: usize, at: usize) -> WireError {
    LenError::new(layer, need, have).beneath(at).into()
}

impl Network {
    fn parse_v4(
        frame: &[u8],
        wire_len: usize,
        at: usize,
        findings: &mut Vec<Finding>,
    ) -> Result<Self, WireError> {
        use err::ipv4::{HeaderError, HeaderSliceError};

        let header = Ipv4HeaderSlice::from_slice(&frame[at..]).map_err(|error| match error {
            HeaderSliceError::Len(len) => short(Layer::Ipv4, len.required_len, len.len, at),
            HeaderSliceError::Content(HeaderError::UnexpectedVersion { version_number }) => {
                WireError::IpVersion { version: version_number }
            }
            HeaderSliceError::Content(HeaderError::HeaderLengthSmallerThanHeader { ihl }) => {
                WireError::Ipv4HeaderLength { words: ihl }
            }
        })?;
        let header_len = header.slice().len();
        let len = ip_len(header.total_len().into(), header_len, wire_len - at, findings);
        let fragment = match (header.is_fragmenting_payload(), header.fragments_offset().value()) {
            (false, _) => Fragment::Not,
            (true, 0) => Fragment::First,
            (true, _) => Fragment::Later,
        };
        Ok(Self {
            source: header.source_addr().into(),
            destination: header.destination_addr().into(),
            traffic_class: header.slice()[1],
            identification: header.identification(),
            protocol: header.protocol().0,
            header_len,
            len,
            base_len: header_len,
            fragment,
            no_icrc: (header.ihl() != 5).then_some(IcrcSkipped::Ipv4Options),
        })
    }

    fn parse_v6(
        frame: &[u8],
        wire_len: usize,
        at: usize,
        findings: &mut Vec<Finding>,
    ) -> Result<Self, WireError> {
        use err::ipv6::{HeaderError, HeaderSliceError};

        let header = Ipv6HeaderSlice::from_slice(&frame[at..]).map_err(|error| match error {
            HeaderSliceError::Len(len) => short(Layer::Ipv6, len.required_len, len.len, at),
            HeaderSliceError::Content(HeaderError::UnexpectedVersion { version_number }) => {
                WireError::IpVersion { version: version_number }
            }
        })?;
        let base_len = header.slice().len();
        let promised = match header.payload_length() {
            0 => 0, // longer than 16 bits can say, before segmentation
            payload => base_len + usize::from(payload),
        };
        let mut network = Self {
            source: header.source_addr().into(),
            destination: header.destination_addr().into(),
            traffic_class: header.traffic_class(),
            identification: 0,
            protocol: header.next_header().0,
            header_len: base_len,
            len: ip_len(promised, base_len, wire_len - at, findings),
            base_len,
            fragment: Fragment::Not,
            no_icrc: None,
        };
        network.skip_extensions(frame, at)?;
        Ok(network)
    }

    /// Terminates: each extension has at least eight bytes.
    fn skip_extensions(&mut self, frame: &[u8], at: usize) -> Result<(), WireError> {
        while self.fragment != Fragment::Later {
            let offset = at + self.header_len;
            let rest = frame.get(offset..).unwrap_or_default();
            let too_short =
                |error: err::LenError| short(Layer::Ipv6, error.required_len, error.len, offset);
            let next = IpNumber(self.protocol);
            let (next, len) = if next == IpNumber::IPV6_FRAGMENTATION_HEADER {
                let header = Ipv6FragmentHeaderSlice::from_slice(rest).map_err(too_short)?;
                if header.is_fragmenting_payload() {
                    self.fragment = match header.fragment_offset().value() {
                        0 => Fragment::First,
                        _ => Fragment::Later,
                    };
                }
                (header.next_header(), header.slice().len())
            } else if Ipv6RawExtHeaderSlice::header_type_supported(next) {
                let header = Ipv6RawExtHeaderSlice::from_slice(rest).map_err(too_short)?;
                (header.next_header(), header.slice().len())
            } else {
                break;
            };
            self.protocol = next.0;
            self.header_len += len;
            self.no_icrc = Some(IcrcSkipped::Ipv6Extensions);
        }
        Ok(())
    }

    /// Parses the layers above IP.
    fn above<'a>(&self, frame: &'a [u8], at: usize, findings: &mut Vec<Finding>) -> Outer<'a> {
        let (source, destination) = (self.source, self.destination);
        if self.fragment == Fragment::Later {
            return Outer::Other(Other::Fragment { source, destination });
        }
        if self.protocol != IpNumber::UDP.0 {
            let protocol = self.protocol;
            return Outer::Other(Other::Protocol { source, destination, protocol });
        }
        let udp_offset = at + self.header_len;
        let rest = frame.get(udp_offset..).unwrap_or_default();
        let Some((udp, behind)) = rest.split_first_chunk::<UDP_LEN>() else {
            return broken(short(Layer::Udp, UDP_LEN, rest.len(), udp_offset), findings);
        };
        let word = |i: usize| u16::from_be_bytes([udp[i], udp[i + 1]]);
        let (source_port, destination_port) = (word(0), word(2));
        if destination_port != ROCE_V2_PORT {
            return Outer::Other(Other::Udp { source, destination, source_port, destination_port });
        }
        if self.source.is_ipv4() {
            check_ipv4_header(&frame[at..at + self.base_len], findings);
        }
        let ip_payload_len = self.len.saturating_sub(self.header_len);
        let udp_len = usize::from(word(4));
        // Zero: longer than 16 bits can say, before segmentation.
        let mut datagram_len = if udp_len == 0 { ip_payload_len } else { udp_len };
        let mut no_icrc = self.no_icrc;
        //= also wire-fragment-dropped
        if self.fragment == Fragment::First {
            findings.push(Finding::Fragment);
            no_icrc = Some(IcrcSkipped::Fragment);
        } else if datagram_len != ip_payload_len {
            let (udp, ip) = (udp_len as u32, ip_payload_len as u32);
            findings.push(Finding::UdpLength { udp, ip });
        }
        datagram_len = datagram_len.clamp(UDP_LEN, ip_payload_len.max(UDP_LEN));
        let len = datagram_len - UDP_LEN;
        let bytes = &behind[..len.min(behind.len())];
        let udp_checksum = self.check_udp(udp, bytes, len, findings);
        Outer::Roce(RoceFrame {
            version: RoceVersion::V2,
            source,
            destination,
            source_port,
            traffic_class: self.traffic_class,
            identification: self.identification,
            udp_checksum,
            ip_offset: at,
            udp_offset,
            bth_offset: udp_offset + UDP_LEN,
            ip: &frame[at..at + self.base_len],
            udp: Some(udp),
            no_icrc,
            bytes,
            len,
        })
    }

    fn check_udp(
        &self,
        udp: &[u8; UDP_LEN],
        payload: &[u8],
        len: usize,
        findings: &mut Vec<Finding>,
    ) -> Checksum {
        let carried = u16::from_be_bytes([udp[6], udp[7]]);
        if carried == 0 {
            return Checksum::None;
        }
        let mut pseudo_header = Sum16BitWords::new();
        for address in [self.source, self.destination] {
            pseudo_header = match address {
                IpAddr::V4(v4) => pseudo_header.add_4bytes(v4.octets()),
                IpAddr::V6(v6) => pseudo_header.add_16bytes(v6.octets()),
            };
        }
        pseudo_header = pseudo_header.add_2bytes([0, IpNumber::UDP.0]).add_2bytes([udp[4], udp[5]]);
        if !u16::from_be(pseudo_header.ones_complement()) == carried {
            return Checksum::Offloaded;
        }
        if payload.len() < len || self.fragment != Fragment::Not {
            return Checksum::Unchecked;
        }
        let sum = pseudo_header.add_slice(&udp[..6]).add_slice(payload);
        let expected = match u16::from_be(sum.ones_complement()) {
            0 => 0xffff, // zero means no checksum
            sum => sum,
        };
        if expected == carried {
            return Checksum::Right;
        }
        findings.push(Finding::UdpChecksum { carried, expected });
        Checksum::Wrong { carried, expected }
    }
}

/// Returns the length of an IP packet: the length in its header, or that of the frame if the
/// header has zero (before segmentation) or a value that does not fit.
fn ip_len(promised: usize, header_len: usize, have: usize, findings: &mut Vec<Finding>) -> usize {
    if promised == 0 {
        return have;
    }
    if promised < header_len || promised > have {
        findings.push(Finding::IpLength { promised: promised as u32, have: have as u32 });
        return have;
    }
    promised
}

fn check_ipv4_header(header: &[u8], findings: &mut Vec<Finding>) {
    if !header.len().is_multiple_of(4) || header.len() < IPV4_LEN {
        return;
    }
    if Sum16BitWords::new().add_slice(header).ones_complement() == 0 {
        return;
    }
    let carried = u16::from_be_bytes([header[10], header[11]]);
    if carried == 0 {
        return; // offloaded to the network card
    }
    let sum = Sum16BitWords::new().add_slice(&header[..10]).add_slice(&header[12..]);
    let expected = u16::from_be(sum.ones_complement());
    findings.push(Finding::Ipv4Checksum { carried, expected });
}

/// Parses a GRH.
fn parse_v1<'a>(
    frame: &'a [u8],
    wire_len: usize,
    at: usize,
    findings: &mut Vec<Finding>,
) -> Outer<'a> {
    let Some(ip) = frame[at..].get(..GRH_LEN) else {
        return broken(short(Layer::Grh, GRH_LEN, frame.len() - at, at), findings);
    };
    let grh = match Grh::split(ip) {
        Ok((grh, _)) => grh,
        Err(error) => return broken(error.beneath(at).into(), findings),
    };
    if grh.version != 6 {
        return broken(WireError::IpVersion { version: grh.version }, findings);
    }
    if grh.next_header != Grh::INFINIBAND {
        return broken(WireError::GrhNextHeader { next_header: grh.next_header }, findings);
    }
    let promised = GRH_LEN + usize::from(grh.payload_len);
    let len = ip_len(promised, GRH_LEN, wire_len - at, findings) - GRH_LEN;
    let bth_offset = at + GRH_LEN;
    let behind = &frame[bth_offset..];
    Outer::Roce(RoceFrame {
        version: RoceVersion::V1,
        source: grh.source.ip(),
        destination: grh.destination.ip(),
        source_port: 0,
        traffic_class: grh.traffic_class,
        identification: 0,
        udp_checksum: Checksum::None,
        ip_offset: at,
        udp_offset: bth_offset,
        bth_offset,
        ip,
        udp: None,
        no_icrc: None,
        bytes: &behind[..len.min(behind.len())],
        len,
    })
}

const IPV4_LEN: usize = 20;
const UDP_LEN: usize = 8;
