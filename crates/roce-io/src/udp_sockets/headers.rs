//! The headers in front of a datagram: written for what arrives, read from what is sent.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use etherparse::checksum::Sum16BitWords;
use roce_wire::ROCE_V2_PORT;

use crate::sys::udp::{DEFAULT_HOP_LIMIT, Incoming};

/// Offset of the payload in a receive buffer. The longest headers need 62 bytes.
pub(super) const PAYLOAD_AT: usize = 64;

/// Writes Ethernet, IP and UDP headers before the payload of a received datagram; returns where they start.
/// `None` if the kernel told no destination of the source's IP version, or there is no room.
///
/// The socket does not tell hop limit, flow label and MAC addresses: the frame has 64, 0, the interface's
/// as destination and zeros as source. The kernel has verified the UDP checksum, which is zero here.
pub(super) fn put(buffer: &mut [u8], datagram: &Incoming, mac: [u8; 6]) -> Option<usize> {
    let udp_len = u16::try_from(UDP_LEN + datagram.len).ok()?;
    let headers = buffer.get_mut(..PAYLOAD_AT)?;
    let at = match (datagram.source, datagram.destination?) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let at = PAYLOAD_AT - IPV4_HEADERS_LEN;
            let ip = &mut headers[at + ETHERNET_LEN..PAYLOAD_AT - UDP_LEN];
            ip.fill(0);
            (ip[0], ip[1]) = (0x45, datagram.traffic_class);
            ip[2..4].copy_from_slice(&udp_len.checked_add(IPV4_LEN as u16)?.to_be_bytes());
            ip[6] = DONT_FRAGMENT;
            (ip[8], ip[9]) = (DEFAULT_HOP_LIMIT, UDP);
            ip[12..16].copy_from_slice(&source.octets());
            ip[16..20].copy_from_slice(&destination.octets());
            headers[at + 12..at + 14].copy_from_slice(&IPV4_TYPE);
            set_identification(&mut headers[at..], 0);
            at
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let at = PAYLOAD_AT - IPV6_HEADERS_LEN;
            let ip = &mut headers[at + ETHERNET_LEN..PAYLOAD_AT - UDP_LEN];
            ip[..4].copy_from_slice(
                &(6 << 28 | u32::from(datagram.traffic_class) << 20).to_be_bytes(),
            );
            ip[4..6].copy_from_slice(&udp_len.to_be_bytes());
            (ip[6], ip[7]) = (UDP, DEFAULT_HOP_LIMIT);
            ip[8..24].copy_from_slice(&source.octets());
            ip[24..40].copy_from_slice(&destination.octets());
            headers[at + 12..at + 14].copy_from_slice(&IPV6_TYPE);
            at
        }
        _ => return None,
    };
    headers[at..at + 6].copy_from_slice(&mac);
    headers[at + 6..at + 12].fill(0);
    let udp = &mut headers[PAYLOAD_AT - UDP_LEN..];
    udp[..2].copy_from_slice(&datagram.source_port.to_be_bytes());
    udp[2..4].copy_from_slice(&ROCE_V2_PORT.to_be_bytes());
    udp[4..6].copy_from_slice(&udp_len.to_be_bytes());
    udp[6..8].fill(0);
    Some(at)
}

/// Sets the identification of a frame over IPv4, and its header checksum.
pub(super) fn set_identification(frame: &mut [u8], identification: u16) {
    let Some(ip) = frame.get_mut(ETHERNET_LEN..ETHERNET_LEN + IPV4_LEN) else { return };
    ip[4..6].copy_from_slice(&identification.to_be_bytes());
    ip[10..12].fill(0);
    let sum = Sum16BitWords::new().add_slice(ip).ones_complement();
    ip[10..12].copy_from_slice(&sum.to_ne_bytes());
}

/// What the headers of a frame say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Headers {
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    pub(super) source_port: u16,
    pub(super) destination_port: u16,
    pub(super) traffic_class: u8,
    pub(super) hop_limit: u8,
    /// Offset of the UDP payload, within the frame.
    pub(super) payload_at: usize,
}

/// Reads the headers of a frame with UDP over IP, without VLAN tags, options and extension headers;
/// `None` for any other.
pub(super) fn read(frame: &[u8]) -> Option<Headers> {
    let (ethernet, network) = frame.split_first_chunk::<ETHERNET_LEN>()?;
    let (source, destination, traffic_class, hop_limit, ip_len) = match ethernet[12..] {
        [0x08, 0x00] => {
            let ip = network.first_chunk::<IPV4_LEN>()?;
            let address = |at: usize| Ipv4Addr::new(ip[at], ip[at + 1], ip[at + 2], ip[at + 3]);
            if (ip[0], ip[9]) != (0x45, UDP) {
                return None;
            }
            (address(12).into(), address(16).into(), ip[1], ip[8], IPV4_LEN)
        }
        [0x86, 0xdd] => {
            let ip = network.first_chunk::<IPV6_LEN>()?;
            let address = |at: usize| -> Option<IpAddr> {
                Some(Ipv6Addr::from(*ip[at..].first_chunk::<16>()?).into())
            };
            if (ip[0] >> 4, ip[6]) != (6, UDP) {
                return None;
            }
            (address(8)?, address(24)?, ip[0] << 4 | ip[1] >> 4, ip[7], IPV6_LEN)
        }
        _ => return None,
    };
    let udp = network.get(ip_len..ip_len + UDP_LEN)?;
    Some(Headers {
        source,
        destination,
        source_port: u16::from_be_bytes([udp[0], udp[1]]),
        destination_port: u16::from_be_bytes([udp[2], udp[3]]),
        traffic_class,
        hop_limit,
        payload_at: ETHERNET_LEN + ip_len + UDP_LEN,
    })
}

const ETHERNET_LEN: usize = 14;
pub(super) const IPV4_LEN: usize = 20;
const IPV6_LEN: usize = 40;
pub(super) const UDP_LEN: usize = 8;
const IPV4_HEADERS_LEN: usize = ETHERNET_LEN + IPV4_LEN + UDP_LEN;
const IPV6_HEADERS_LEN: usize = ETHERNET_LEN + IPV6_LEN + UDP_LEN;
const IPV4_TYPE: [u8; 2] = [0x08, 0x00];
const IPV6_TYPE: [u8; 2] = [0x86, 0xdd];
const UDP: u8 = 17;
const DONT_FRAGMENT: u8 = 0x40;

#[cfg(test)]
mod tests {
    use roce_wire::Frame;

    use super::*;

    fn incoming(source: &str, destination: &str) -> Incoming {
        Incoming {
            len: 24,
            source: source.parse().unwrap(),
            destination: Some(destination.parse().unwrap()),
            source_port: 0xc123,
            traffic_class: 0x6b,
            ..Incoming::default()
        }
    }

    #[test]
    fn the_headers_of_a_datagram_say_what_the_socket_told() {
        for (source, destination) in [("10.1.0.1", "10.1.0.2"), ("fd00::1", "fd00::2")] {
            let datagram = incoming(source, destination);
            let mut buffer = vec![0xee; PAYLOAD_AT + 24];
            let at = put(&mut buffer, &datagram, [2, 0, 0, 0, 0, 7]).unwrap();
            let frame = Frame::parse(&buffer[at..]).unwrap();
            assert_eq!(
                (frame.source(), frame.destination()),
                (datagram.source, datagram.destination.unwrap())
            );
            assert_eq!((frame.source_port(), frame.traffic_class()), (0xc123, 0x6b));
            assert_eq!(
                (frame.destination_mac().0, frame.payload().len()),
                ([2, 0, 0, 0, 0, 7], 24)
            );
            let read = read(&buffer[at..]).unwrap();
            assert_eq!(
                (read.source, read.destination),
                (datagram.source, datagram.destination.unwrap())
            );
            assert_eq!((read.source_port, read.destination_port), (0xc123, 4791));
            assert_eq!(
                (read.traffic_class, read.hop_limit, at + read.payload_at),
                (0x6b, 64, PAYLOAD_AT)
            );
        }
    }

    #[test]
    fn an_identification_leaves_the_header_checksum_right() {
        let mut buffer = vec![0; PAYLOAD_AT + 24];
        let at = put(&mut buffer, &incoming("10.1.0.1", "10.1.0.2"), [0; 6]).unwrap();
        for identification in [0, 1, 0xabcd, 0xffff] {
            set_identification(&mut buffer[at..], identification);
            assert_eq!(Frame::parse(&buffer[at..]).unwrap().identification(), Some(identification));
        }
    }

    #[test]
    fn a_datagram_without_a_destination_or_of_two_ip_versions_has_no_headers() {
        let fine = incoming("10.1.0.1", "10.1.0.2");
        let none = Incoming { destination: None, ..fine };
        let mixed = Incoming { destination: Some("fd00::2".parse().unwrap()), ..fine };
        let long = Incoming { len: 65_508, ..fine };
        for datagram in [none, mixed, long] {
            assert_eq!(put(&mut [0; 70_000], &datagram, [0; 6]), None);
        }
    }

    #[test]
    fn no_frame_of_any_length_causes_a_panic() {
        for ether_type in [IPV4_TYPE, IPV6_TYPE, [0x81, 0]] {
            let mut frame = [0x45; 80];
            frame[12..14].copy_from_slice(&ether_type);
            for len in 0..frame.len() {
                let _headers = read(&frame[..len]);
                set_identification(&mut frame[..len].to_vec(), 7);
            }
        }
    }
}
