//! RoCEv1: a packet with a GRH under its own EtherType. Received only.

use crate::{
    BadIcrc, GRH_LEN, Grh, Headers, Layer, LenError, MacAddr, PacketView, VlanTag, WireError,
    icrc::{icrc_behind_grh, split_icrc},
    link::Link,
};

/// A RoCEv1 frame: always one packet.
///
/// For display only: it cannot become a [`Packet`](crate::Packet) for an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameV1<'a> {
    link: Link,
    grh: Grh,
    /// The bytes of the GRH, for the ICRC.
    grh_bytes: &'a [u8; GRH_LEN],
    /// From the first byte of the BTH to the last byte of the ICRC.
    bytes: &'a [u8],
    /// The same without ICRC.
    covered: &'a [u8],
    view: PacketView<'a>,
    icrc: u32,
}

impl<'a> FrameV1<'a> {
    /// Parses the headers of a frame.
    ///
    /// # Errors
    /// [`WireError`] names the short or invalid header.
    pub fn parse(frame: &'a [u8]) -> Result<Self, WireError> {
        let (link, network) = Link::split(frame)?;
        if link.ether_type != ROCE_V1_ETHER_TYPE {
            return Err(WireError::EtherType { ether_type: link.ether_type });
        }
        let grh_offset = frame.len() - network.len();
        let (grh_bytes, rest) =
            LenError::split(Layer::Grh, network).map_err(|short| short.beneath(grh_offset))?;
        let grh = Grh::from_bytes(grh_bytes);
        if grh.version != 6 {
            return Err(WireError::IpVersion { version: grh.version });
        }
        if grh.next_header != Grh::INFINIBAND {
            return Err(WireError::GrhNextHeader { next_header: grh.next_header });
        }
        // Ethernet padding may follow the packet.
        let len = GRH_LEN + usize::from(grh.payload_len);
        let short = LenError::new(Layer::Grh, len, network.len()).beneath(grh_offset);
        let bytes = rest.get(..grh.payload_len.into()).ok_or(short)?;
        let (covered, view, icrc) = split_icrc(bytes)
            .and_then(|(covered, icrc)| Ok((covered, PacketView::parse(covered)?, icrc)))
            .map_err(|error| error.beneath(grh_offset + GRH_LEN))?;
        Ok(Self { link, grh, grh_bytes, bytes, covered, view, icrc })
    }

    /// Verifies the ICRC.
    ///
    /// # Errors
    /// [`BadIcrc`].
    pub fn check_icrc(&self) -> Result<(), BadIcrc> {
        let computed = icrc_behind_grh(self.grh_bytes, self.covered);
        let carried = self.icrc;
        if computed == carried { Ok(()) } else { Err(BadIcrc { computed, carried }) }
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

    /// The GRH.
    pub const fn grh(&self) -> &Grh {
        &self.grh
    }

    /// BTH and extension headers.
    pub fn headers(&self) -> Headers {
        self.view.headers()
    }

    /// The payload, without pad.
    pub fn payload(&self) -> &'a [u8] {
        self.view.payload()
    }

    /// The whole packet, from the first byte of the BTH to the last of the ICRC.
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

/// The EtherType of RoCEv1.
pub const ROCE_V1_ETHER_TYPE: u16 = 0x8915;
