//! Ethernet header and VLAN tags of a received frame.

use etherparse::{Ethernet2HeaderSlice, SingleVlanHeaderSlice};

use crate::{Layer, LenError, MacAddr, VlanTag, WireError};

/// The headers before the network layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) source: MacAddr,
    pub(crate) destination: MacAddr,
    vlans: [VlanTag; MAX_VLAN_TAGS],
    vlan_count: usize,
    /// The innermost EtherType.
    pub(crate) ether_type: u16,
}

impl Link {
    pub(crate) fn split(bytes: &[u8]) -> Result<(Self, &[u8]), WireError> {
        let ethernet = Ethernet2HeaderSlice::from_slice(bytes)
            .map_err(|_| LenError::new(Layer::Ethernet, ETHERNET_LEN, bytes.len()))?;
        let mut link = Self {
            source: MacAddr(ethernet.source()),
            destination: MacAddr(ethernet.destination()),
            vlans: [VlanTag::default(); MAX_VLAN_TAGS],
            vlan_count: 0,
            ether_type: ethernet.ether_type().0,
        };
        let mut rest = &bytes[ETHERNET_LEN..];
        while matches!(link.ether_type, VLAN | PROVIDER_VLAN) {
            let tag = SingleVlanHeaderSlice::from_slice(rest).map_err(|_| {
                let at = bytes.len() - rest.len();
                LenError::new(Layer::Vlan, VLAN_LEN, rest.len()).beneath(at)
            })?;
            let slot = link.vlans.get_mut(link.vlan_count).ok_or(WireError::TooManyVlanTags)?;
            *slot = VlanTag::from_control_information([tag.slice()[0], tag.slice()[1]]);
            link.vlan_count += 1;
            link.ether_type = tag.ether_type().0;
            rest = &rest[VLAN_LEN..];
        }
        Ok((link, rest))
    }

    /// The link of a frame without VLAN tags.
    pub(crate) fn without_tags(source: MacAddr, destination: MacAddr, is_ipv4: bool) -> Self {
        let ether_type = if is_ipv4 { IPV4 } else { IPV6 };
        let vlans = [VlanTag::default(); MAX_VLAN_TAGS];
        Self { source, destination, vlans, vlan_count: 0, ether_type }
    }

    /// Parses a header without tags; `None` for another EtherType.
    #[inline]
    pub(crate) fn untagged(bytes: &[u8; ETHERNET_LEN], ether_type: u16) -> Option<Self> {
        let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, t0, t1] = *bytes;
        (u16::from_be_bytes([t0, t1]) == ether_type).then_some(Self {
            source: MacAddr([s0, s1, s2, s3, s4, s5]),
            destination: MacAddr([d0, d1, d2, d3, d4, d5]),
            vlans: [VlanTag::default(); MAX_VLAN_TAGS],
            vlan_count: 0,
            ether_type,
        })
    }

    pub(crate) fn vlans(&self) -> &[VlanTag] {
        &self.vlans[..self.vlan_count]
    }
}

const MAX_VLAN_TAGS: usize = 2;

pub(crate) const ETHERNET_LEN: usize = 14;
pub(crate) const VLAN_LEN: usize = 4;

pub(crate) const VLAN: u16 = 0x8100;
/// EtherType of the outer of two tags (802.1ad).
const PROVIDER_VLAN: u16 = 0x88a8;
pub(crate) const IPV4: u16 = 0x0800;
pub(crate) const IPV6: u16 = 0x86dd;
