//! The headers in front of a packet that is sent: Ethernet, VLAN, IP, UDP.

use core::net::IpAddr;

use etherparse::{
    EtherType, Ethernet2Header, IpNumber, Ipv4Header, Ipv6FlowLabel, Ipv6Header, UdpHeader,
};

use crate::{
    MacAddr, Qpn, ROCE_V2_PORT, SealError, UdpChecksum,
    frame::pseudo_header_sum,
    icrc::{CoveredHeaders, IPV4_LEN, IPV6_LEN, UDP_LEN},
    link::{self, ETHERNET_LEN, VLAN_LEN},
};

/// What goes in front of every packet on one path.
///
/// ```
/// use roce_wire::OuterHeaders;
/// let outer =
///     OuterHeaders::new("10.9.0.1".parse().unwrap(), "10.9.0.2".parse().unwrap());
/// assert_eq!(outer.len(), 42);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OuterHeaders {
    /// The interface that sends.
    pub source_mac: MacAddr,
    /// The next hop.
    pub destination_mac: MacAddr,
    /// A VLAN tag, where the interface does not put one in itself.
    pub vlan: Option<VlanTag>,
    /// Our address.
    pub source: IpAddr,
    /// The peer's address, of the same IP version.
    pub destination: IpAddr,
    /// UDP source port: the same for all packets of a connection, so that routers keep
    /// them in order; see [`source_port_for`].
    pub source_port: u16,
    /// TOS (IPv4) or traffic class (IPv6).
    pub traffic_class: u8,
    /// TTL (IPv4) or hop limit (IPv6).
    pub hop_limit: u8,
    /// IPv6 flow label; its low 20 bits are sent. Means nothing for IPv4.
    pub flow_label: u32,
}

impl OuterHeaders {
    /// Headers between two addresses, with MAC addresses of zeros, no VLAN tag, source
    /// port 49152, traffic class 0, hop limit 64 and flow label 0.
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

    /// Bytes in front of the BTH: 42 for IPv4, 62 for IPv6, and 4 more with a VLAN tag.
    pub const fn len(&self) -> usize {
        let ip_len = if self.source.is_ipv4() { IPV4_LEN } else { IPV6_LEN };
        self.ip_offset() + ip_len + UDP_LEN
    }

    /// Always `false`: there is an Ethernet header at least.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Where the IP header starts, in bytes from the start of the frame.
    pub const fn ip_offset(&self) -> usize {
        if self.vlan.is_some() { ETHERNET_LEN + VLAN_LEN } else { ETHERNET_LEN }
    }

    /// Where the UDP header starts, in bytes from the start of the frame.
    pub const fn udp_offset(&self) -> usize {
        self.len() - UDP_LEN
    }

    /// Writes the headers of a train of `train_len` bytes, which fill `into` exactly.
    pub(crate) fn write(
        &self,
        identification: u16,
        train_len: usize,
        checksum: UdpChecksum,
        into: &mut [u8],
    ) -> Result<CoveredHeaders, SealError> {
        let too_long = SealError::TrainTooLong { len: train_len };
        let udp_len = u16::try_from(UDP_LEN + train_len).map_err(|_| too_long)?;
        let udp = UdpHeader {
            source_port: self.source_port,
            destination_port: ROCE_V2_PORT,
            length: udp_len,
            checksum: match checksum {
                UdpChecksum::Zero => 0,
                UdpChecksum::PartialForOffload => {
                    // The folded sum itself, not its complement: the device adds the rest.
                    let sum = pseudo_header_sum(self.source, self.destination, udp_len.into());
                    !u16::from_be(sum.ones_complement())
                }
            },
        }
        .to_bytes();

        let (before_udp, udp_place) = into.split_at_mut(self.udp_offset());
        let (link_place, ip_place) = before_udp.split_at_mut(self.ip_offset());
        udp_place.copy_from_slice(&udp);
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let total_len = udp_len.checked_add(IPV4_LEN as u16).ok_or(too_long)?;
                let mut ip = Ipv4Header {
                    total_len,
                    identification,
                    dont_fragment: true,
                    time_to_live: self.hop_limit,
                    protocol: IpNumber::UDP,
                    source: source.octets(),
                    destination: destination.octets(),
                    ..Ipv4Header::default()
                };
                ip.dscp = (self.traffic_class >> 2).try_into().unwrap_or_default();
                ip.ecn = (self.traffic_class & 0b11).try_into().unwrap_or_default();
                ip.header_checksum = ip.calc_header_checksum();
                ip_place.copy_from_slice(&ip.to_bytes());
                self.write_link(link::IPV4, link_place);
                let mut ip = [0; IPV4_LEN];
                ip.copy_from_slice(ip_place);
                Ok(CoveredHeaders::ipv4(&ip, &udp))
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let ip = Ipv6Header {
                    traffic_class: self.traffic_class,
                    flow_label: Ipv6FlowLabel::try_new(self.flow_label & 0xf_ffff)
                        .unwrap_or_default(),
                    payload_length: udp_len,
                    next_header: IpNumber::UDP,
                    hop_limit: self.hop_limit,
                    source: source.octets(),
                    destination: destination.octets(),
                }
                .to_bytes();
                ip_place.copy_from_slice(&ip);
                self.write_link(link::IPV6, link_place);
                Ok(CoveredHeaders::ipv6(&ip, &udp))
            }
            _ => Err(SealError::MixedFamilies),
        }
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

/// A VLAN tag: which virtual network a frame belongs to, and how urgent it is.
///
/// ```
/// use roce_wire::VlanTag;
/// let tag = VlanTag::new(100, 3, false).unwrap();
/// assert_eq!(tag.control_information(), [0x60, 100]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct VlanTag(u16);

impl VlanTag {
    /// `None` if `id` needs more than 12 bits or `priority` more than 3.
    pub const fn new(id: u16, priority: u8, drop_eligible: bool) -> Option<Self> {
        if id < 1 << 12 && priority < 1 << 3 {
            Some(Self((priority as u16) << 13 | (drop_eligible as u16) << 12 | id))
        } else {
            None
        }
    }

    /// Reads the two bytes behind the EtherType of a tag; all of them have a meaning.
    pub const fn from_control_information(bytes: [u8; 2]) -> Self {
        Self(u16::from_be_bytes(bytes))
    }

    /// As it stands behind the EtherType of a tag.
    pub const fn control_information(self) -> [u8; 2] {
        self.0.to_be_bytes()
    }

    /// The virtual network, 0 ..= 4095.
    pub const fn id(self) -> u16 {
        self.0 & 0xfff
    }

    /// Priority code point, 0 ..= 7.
    pub const fn priority(self) -> u8 {
        (self.0 >> 13) as u8
    }

    /// May a switch drop this frame before others?
    pub const fn drop_eligible(self) -> bool {
        self.0 & 0x1000 != 0
    }
}

/// UDP source port of a connection between two queue pairs: the same from both ends.
///
/// `flow_label` spreads connections by hand where it is not 0; its low 20 bits count.
///
/// ```
/// use roce_wire::{Qpn, source_port_for};
/// let qpn = Qpn::new(0x11).unwrap();
/// assert_eq!(source_port_for(qpn, qpn, 0), 49441);
/// assert_eq!(source_port_for(qpn, qpn, 0xa3d00), 64808);
/// ```
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

    #[test]
    fn source_ports_are_those_of_rxe() {
        let port = |local, remote, label| {
            source_port_for(Qpn::new(local).unwrap(), Qpn::new(remote).unwrap(), label)
        };
        assert_eq!(port(0x11, 0x11, 0), 49441);
        assert_eq!(port(0x11, 0x11, 0xa_3d00), 64808);
        // A product of 48 bits, so that both folds count.
        assert_eq!(port(0xff_ffff, 0xff_fffe, 0), 65298);
    }

    #[test]
    fn a_vlan_number_or_priority_that_needs_more_bits_is_refused() {
        assert_eq!(VlanTag::new(1 << 12, 0, false), None);
        assert_eq!(VlanTag::new(0, 8, false), None);
    }

    proptest! {
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
        fn every_vlan_tag_survives_the_wire(id in 0u16..1 << 12, priority in 0u8..8, drop: bool) {
            let tag = VlanTag::new(id, priority, drop).unwrap();
            let read = VlanTag::from_control_information(tag.control_information());
            prop_assert_eq!((read.id(), read.priority(), read.drop_eligible()), (id, priority, drop));
        }
    }
}
