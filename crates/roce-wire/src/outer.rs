//! The outer headers of a packet to send: Ethernet, VLAN, IP, UDP.

use core::net::IpAddr;

use etherparse::{
    EtherType, Ethernet2Header, IpNumber, Ipv4Header, Ipv6FlowLabel, Ipv6Header, UdpHeader,
};

use crate::{
    MacAddr, Qpn, ROCE_V2_PORT, SealError, VlanTag,
    icrc::{IPV4_LEN, IPV6_LEN, IcrcPseudoHeader, UDP_LEN},
    link::{self, ETHERNET_LEN, VLAN_LEN},
};

/// The outer headers of the packets on one path.
///
/// ```
/// use roce_wire::OuterHeaders;
/// let outer =
///     OuterHeaders::new("10.9.0.1".parse().unwrap(), "10.9.0.2".parse().unwrap());
/// assert_eq!(outer.len(), 42);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OuterHeaders {
    /// Source MAC address.
    pub source_mac: MacAddr,
    /// Destination MAC address, the next hop's.
    pub destination_mac: MacAddr,
    /// VLAN tag, if the interface does not insert it.
    pub vlan: Option<VlanTag>,
    /// Source address.
    pub source: IpAddr,
    /// Destination address, of the same IP version.
    pub destination: IpAddr,
    /// UDP source port, one for all packets of a connection, so that routers keep their order; see
    /// [`source_port_for`].
    pub source_port: u16,
    /// TOS (IPv4) or traffic class (IPv6).
    pub traffic_class: u8,
    /// TTL (IPv4) or hop limit (IPv6).
    pub hop_limit: u8,
    /// IPv6 flow label; its low 20 bits are sent. Ignored for IPv4.
    pub flow_label: u32,
}

impl OuterHeaders {
    /// Creates headers with MAC addresses of zeros, no VLAN tag, source port 49152, traffic class
    /// 0, hop limit 64 and flow label 0.
    pub const fn new(source: IpAddr, destination: IpAddr) -> Self {
        Self {
            source_mac: MacAddr([0; 6]),
            destination_mac: MacAddr([0; 6]),
            vlan: None,
            source,
            destination,
            source_port: 0xc000,
            traffic_class: 0,
            hop_limit: 64,
            flow_label: 0,
        }
    }

    /// Returns the length in bytes: 42 for IPv4, 62 for IPv6, and 4 more with a VLAN tag.
    pub const fn len(&self) -> usize {
        let ip_len = if self.source.is_ipv4() { IPV4_LEN } else { IPV6_LEN };
        self.ip_offset() + ip_len + UDP_LEN
    }

    /// Returns `false`.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Returns the offset of the IP header in the frame.
    pub const fn ip_offset(&self) -> usize {
        if self.vlan.is_some() { ETHERNET_LEN + VLAN_LEN } else { ETHERNET_LEN }
    }

    /// Returns the offset of the UDP header in the frame.
    pub const fn udp_offset(&self) -> usize {
        self.len() - UDP_LEN
    }

    /// Returns the headers of a frame without payload, with identification, source port and
    /// checksums of zero.
    pub(crate) fn write(&self) -> Result<HeaderTemplate, SealError> {
        let mut template = HeaderTemplate {
            bytes: [0; LONGEST],
            len: self.len() as u8,
            ip_at: self.ip_offset() as u8,
            udp_at: self.udp_offset() as u8,
        };
        let (before_udp, udp_place) = template.bytes[..self.len()].split_at_mut(self.udp_offset());
        let (link_place, ip_place) = before_udp.split_at_mut(self.ip_offset());
        let udp =
            UdpHeader { source_port: 0, destination_port: ROCE_V2_PORT, length: 0, checksum: 0 };
        udp_place.copy_from_slice(&udp.to_bytes());
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let mut ip = Ipv4Header {
                    total_len: 0,
                    //= rule wire-dont-fragment: rxe_net.c: prepare4
                    //# IPv4 packets are sent with the flag that forbids fragments.
                    dont_fragment: true,
                    time_to_live: self.hop_limit,
                    protocol: IpNumber::UDP,
                    source: source.octets(),
                    destination: destination.octets(),
                    ..Ipv4Header::default()
                };
                ip.dscp = (self.traffic_class >> 2).try_into().unwrap_or_default();
                ip.ecn = (self.traffic_class & 0b11).try_into().unwrap_or_default();
                ip_place.copy_from_slice(&ip.to_bytes());
                self.write_link(link::IPV4, link_place);
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let ip = Ipv6Header {
                    traffic_class: self.traffic_class,
                    flow_label: Ipv6FlowLabel::try_new(self.flow_label & 0xf_ffff)
                        .unwrap_or_default(),
                    payload_length: 0,
                    next_header: IpNumber::UDP,
                    hop_limit: self.hop_limit,
                    source: source.octets(),
                    destination: destination.octets(),
                };
                ip_place.copy_from_slice(&ip.to_bytes());
                self.write_link(link::IPV6, link_place);
            }
            _ => return Err(SealError::MixedFamilies),
        }
        Ok(template)
    }

    /// Returns what the ICRC covers of these headers, without lengths and identification.
    pub(crate) fn covered(&self) -> Result<IcrcPseudoHeader, SealError> {
        let headers = self.write()?;
        let (ip, udp) = headers.bytes()[self.ip_offset()..].split_at(headers.ip_len());
        let udp = udp.first_chunk().ok_or(SealError::MixedFamilies)?;
        let covered = match (ip.first_chunk(), ip.first_chunk()) {
            (_, Some(ip)) => IcrcPseudoHeader::ipv6(ip, udp),
            (Some(ip), None) => IcrcPseudoHeader::ipv4(ip, udp),
            (None, None) => return Err(SealError::MixedFamilies),
        };
        Ok(covered.with_source_port(self.source_port))
    }

    fn write_link(&self, ether_type: u16, into: &mut [u8]) {
        let outer_type = if self.vlan.is_some() { link::VLAN } else { ether_type };
        let ethernet = Ethernet2Header {
            source: self.source_mac.0,
            destination: self.destination_mac.0,
            ether_type: EtherType(outer_type),
        };
        into[..ETHERNET_LEN].copy_from_slice(&ethernet.to_bytes());
        if let Some(vlan) = self.vlan {
            into[ETHERNET_LEN..][..2].copy_from_slice(&vlan.control_information());
            into[ETHERNET_LEN + 2..].copy_from_slice(&ether_type.to_be_bytes());
        }
    }
}

/// Outer headers as bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeaderTemplate {
    bytes: [u8; LONGEST],
    len: u8,
    ip_at: u8,
    udp_at: u8,
}

impl HeaderTemplate {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len()]
    }

    pub(crate) const fn len(&self) -> usize {
        self.len as usize
    }

    pub(crate) const fn ip_at(&self) -> usize {
        self.ip_at as usize
    }

    pub(crate) const fn ip_len(&self) -> usize {
        (self.udp_at - self.ip_at) as usize
    }

    /// Copies them into `place`, which has their length.
    pub(crate) fn copy_to(&self, place: &mut [u8]) {
        match place.first_chunk_mut::<SHORTEST>() {
            // The most frequent: the length is known to the compiler.
            Some(whole) if self.len() == SHORTEST => {
                whole.copy_from_slice(&self.bytes[..SHORTEST]);
            }
            _ => place.copy_from_slice(self.bytes()),
        }
    }

    pub(crate) fn set_destination_mac(&mut self, station: MacAddr) {
        self.bytes[..6].copy_from_slice(&station.0);
    }

    pub(crate) fn set_source_mac(&mut self, interface: MacAddr) {
        self.bytes[6..12].copy_from_slice(&interface.0);
    }

    pub(crate) fn set_traffic_class(&mut self, traffic_class: u8, is_ipv4: bool) {
        let ip_at = self.ip_at();
        if is_ipv4 {
            self.bytes[ip_at + 1] = traffic_class;
        } else {
            self.bytes[ip_at] = self.bytes[ip_at] & 0xf0 | traffic_class >> 4;
            self.bytes[ip_at + 1] = self.bytes[ip_at + 1] & 0x0f | traffic_class << 4;
        }
    }
}

const SHORTEST: usize = ETHERNET_LEN + IPV4_LEN + UDP_LEN;
const LONGEST: usize = ETHERNET_LEN + VLAN_LEN + IPV6_LEN + UDP_LEN;

/// Returns the UDP source port of a connection between two queue pairs, the same at both ends. If
/// it is not 0, the low 20 bits of `flow_label` determine it instead.
///
/// ```
/// use roce_wire::{Qpn, source_port_for};
/// let qpn = Qpn::new(0x11).unwrap();
/// assert_eq!(source_port_for(qpn, qpn, 0), 49441);
/// assert_eq!(source_port_for(qpn, qpn, 0xa3d00), 64808);
/// ```
//= rule wire-source-port: include/rdma/ib_verbs.h: rdma_get_udp_sport
//# The UDP source port comes from the flow label, or else from both queue pair numbers, and is
//# 49152 or above.
pub const fn source_port_for(local: Qpn, remote: Qpn, flow_label: u32) -> u16 {
    let label = if flow_label & 0xf_ffff != 0 {
        flow_label & 0xf_ffff
    } else {
        let mut product = local.get() as u64 * remote.get() as u64;
        product ^= product >> 20;
        product ^= product >> 40;
        product as u32 & 0xf_ffff
    };
    0xc000 | ((label & 0x3fff) ^ (label >> 14)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    //= test wire-source-port
    #[test]
    fn source_ports_equal_those_of_rxe() {
        let port = |local, remote, label| {
            source_port_for(Qpn::new(local).unwrap(), Qpn::new(remote).unwrap(), label)
        };
        assert_eq!(port(0x11, 0x11, 0), 49441);
        assert_eq!(port(0x11, 0x11, 0xa_3d00), 64808);
        // A product of 48 bits, so that both folds matter.
        assert_eq!(port(0xff_ffff, 0xff_fffe, 0), 65298);
    }

    #[test]
    fn a_vlan_number_or_priority_that_needs_more_bits_is_refused() {
        assert_eq!(VlanTag::new(1 << 12, 0, false), None);
        assert_eq!(VlanTag::new(0, 8, false), None);
    }

    proptest! {
        //= test wire-source-port
        #[test]
        fn both_ends_of_a_connection_use_the_same_port(
            local in 0u32..1 << 24, remote in 0u32..1 << 24, label: u32,
        ) {
            let (local, remote) = (Qpn::new(local).unwrap(), Qpn::new(remote).unwrap());
            let port = source_port_for(local, remote, label);
            prop_assert_eq!(port, source_port_for(remote, local, label));
            prop_assert!(port >= 0xc000);
        }

        #[test]
        fn a_written_vlan_tag_is_read_unchanged(id in 0u16..1 << 12, priority in 0u8..8, drop: bool) {
            let tag = VlanTag::new(id, priority, drop).unwrap();
            let read = VlanTag::from_control_information(tag.control_information());
            prop_assert_eq!((read.id(), read.priority(), read.drop_eligible()), (id, priority, drop));
        }
    }
}
