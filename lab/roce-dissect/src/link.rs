//! The link layer: Ethernet with VLAN tags, Linux "cooked", or none.

use etherparse::{Ethernet2HeaderSlice, SingleVlanHeaderSlice};
use roce_wire::{Layer, LenError, MacAddr, WireError};

use crate::LinkType;

/// Parsed link header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    /// Source MAC address, if the capture has it.
    pub(crate) source: Option<MacAddr>,
    /// The innermost EtherType.
    pub(crate) ether_type: u16,
    /// Bytes of link header and VLAN tags together.
    pub(crate) len: usize,
    /// Bytes of the link header alone.
    pub(crate) base_len: usize,
}

impl Link {
    /// Parses the link header. An unsupported link type has EtherType 0.
    pub(crate) fn parse(kind: LinkType, frame: &[u8]) -> Result<Self, WireError> {
        let base = match kind {
            LinkType::Ethernet => Self::ethernet(frame)?,
            LinkType::LinuxCooked => Self::cooked(frame)?,
            LinkType::LinuxCooked2 => Self::cooked2(frame)?,
            LinkType::RawIp => Self::raw(frame)?,
            LinkType::Other(_) => Self { source: None, ether_type: 0, len: 0, base_len: 0 },
        };
        base.skip_vlan_tags(frame)
    }

    fn ethernet(frame: &[u8]) -> Result<Self, WireError> {
        let header = Ethernet2HeaderSlice::from_slice(frame)
            .map_err(|_| LenError::new(Layer::Ethernet, ETHERNET_LEN, frame.len()))?;
        let source = Some(MacAddr(header.source()));
        Ok(Self::new(source, header.ether_type().0, ETHERNET_LEN))
    }

    fn cooked(frame: &[u8]) -> Result<Self, WireError> {
        let header: &[u8; COOKED_LEN] =
            frame.first_chunk().ok_or(LenError::new(Layer::Ethernet, COOKED_LEN, frame.len()))?;
        let source = cooked_source(&header[2..4], header[5], &header[6..12]);
        Ok(Self::new(source, u16::from_be_bytes([header[14], header[15]]), COOKED_LEN))
    }

    fn cooked2(frame: &[u8]) -> Result<Self, WireError> {
        let header: &[u8; COOKED2_LEN] =
            frame.first_chunk().ok_or(LenError::new(Layer::Ethernet, COOKED2_LEN, frame.len()))?;
        let source = cooked_source(&header[8..10], header[11], &header[12..18]);
        Ok(Self::new(source, u16::from_be_bytes([header[0], header[1]]), COOKED2_LEN))
    }

    fn raw(frame: &[u8]) -> Result<Self, WireError> {
        let first = frame.first().ok_or(LenError::new(Layer::Ipv4, 1, 0))?;
        let ether_type = match first >> 4 {
            4 => IPV4,
            6 => IPV6,
            version => return Err(WireError::IpVersion { version }),
        };
        Ok(Self::new(None, ether_type, 0))
    }

    const fn new(source: Option<MacAddr>, ether_type: u16, len: usize) -> Self {
        Self { source, ether_type, len, base_len: len }
    }

    fn skip_vlan_tags(mut self, frame: &[u8]) -> Result<Self, WireError> {
        for _ in 0..MAX_VLAN_TAGS {
            if !matches!(self.ether_type, VLAN | PROVIDER_VLAN | OLD_PROVIDER_VLAN) {
                return Ok(self);
            }
            let rest = &frame[self.len..];
            let tag = SingleVlanHeaderSlice::from_slice(rest)
                .map_err(|_| LenError::new(Layer::Vlan, VLAN_LEN, rest.len()).beneath(self.len))?;
            self.ether_type = tag.ether_type().0;
            self.len += VLAN_LEN;
        }
        Err(WireError::TooManyVlanTags)
    }

    /// Returns the number of VLAN tags.
    pub(crate) const fn vlan_tags(&self) -> usize {
        (self.len - self.base_len) / VLAN_LEN
    }
}

/// Returns the address in a cooked header, if it is an Ethernet address.
fn cooked_source(hardware: &[u8], len: u8, address: &[u8]) -> Option<MacAddr> {
    let ethernet = matches!(hardware, [0, 1]) && len == 6;
    ethernet.then(|| address.first_chunk().map(|bytes| MacAddr(*bytes))).flatten()
}

/// Bound of the loop; a third tag is an error.
const MAX_VLAN_TAGS: usize = 3;

pub(crate) const ETHERNET_LEN: usize = 14;
pub(crate) const VLAN_LEN: usize = 4;
pub(crate) const COOKED_LEN: usize = 16;
pub(crate) const COOKED2_LEN: usize = 20;

const VLAN: u16 = 0x8100;
/// Provider's outer tag (802.1ad).
const PROVIDER_VLAN: u16 = 0x88a8;
/// Provider's outer tag before 802.1ad.
const OLD_PROVIDER_VLAN: u16 = 0x9100;
pub(crate) const IPV4: u16 = 0x0800;
pub(crate) const IPV6: u16 = 0x86dd;
/// Pause frames.
pub(crate) const MAC_CONTROL: u16 = 0x8808;
