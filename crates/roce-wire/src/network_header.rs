//! The network header of a packet, as a datagram's receiver gets it.

use core::net::IpAddr;

use etherparse::{IpNumber, Ipv4Header, Ipv6FlowLabel, Ipv6Header};

use crate::icrc::{IPV4_LEN, UDP_LEN};
use crate::{GRH_LEN, ICRC_LEN, Packet};

impl<Trust> Packet<'_, Trust> {
    /// Returns the 40 bytes that stand in front of a received datagram: the IPv6 header, or 20 zeros
    /// and the IPv4 header with its checksum. Lengths are those of this packet alone, also if it
    /// arrived in a train.
    ///
    /// Both versions are told apart as `ibv_init_ah_from_wc` does it: by the version in front, and by
    /// the checksum.
    //= rule wire-network-header: RoCEv2, clause not known; rxe_resp.c: execute
    //# 40 bytes stand in front of a received datagram: the IPv6 header, or 20 bytes and the IPv4
    //# header.
    pub fn network_header(&self) -> [u8; GRH_LEN] {
        let frame = self.frame();
        let len = (UDP_LEN + self.view().len_with_pad() + ICRC_LEN) as u16; // an IP packet has at most 65 535
        match (self.source(), self.destination()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let mut ip = Ipv4Header {
                    total_len: IPV4_LEN as u16 + len,
                    identification: frame.identification().unwrap_or(0).wrapping_add(self.index()),
                    dont_fragment: true,
                    time_to_live: frame.hop_limit(),
                    protocol: IpNumber::UDP,
                    source: source.octets(),
                    destination: destination.octets(),
                    ..Ipv4Header::default()
                };
                ip.dscp = (frame.traffic_class() >> 2).try_into().unwrap_or_default();
                ip.ecn = (frame.traffic_class() & 0b11).try_into().unwrap_or_default();
                ip.header_checksum = ip.calc_header_checksum();
                let mut bytes = [0; GRH_LEN];
                bytes[GRH_LEN - IPV4_LEN..].copy_from_slice(&ip.to_bytes());
                bytes
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => Ipv6Header {
                traffic_class: frame.traffic_class(),
                flow_label: Ipv6FlowLabel::try_new(frame.flow_label()).unwrap_or_default(),
                payload_length: len,
                next_header: IpNumber::UDP,
                hop_limit: frame.hop_limit(),
                source: source.octets(),
                destination: destination.octets(),
            }
            .to_bytes(),
            _ => [0; GRH_LEN], // one header has both addresses
        }
    }
}
