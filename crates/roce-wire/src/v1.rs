//! RoCEv1: the same packet behind a GRH in its own EtherType. Read, never sent.

use crate::{
    BadIcrc, GRH_LEN, Grh, Headers, Layer, LenError, MacAddr, VlanTag, WireError, body::Body,
    icrc::icrc_behind_grh, link::Link,
};

/// A RoCEv1 frame: always one packet.
///
/// It is shown, and never acted upon: there is no way from here to a
/// [`Packet`](crate::Packet) that an engine would take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameV1<'a> {
    link: Link,
    grh: Grh,
    /// The GRH as it stands, for the ICRC.
    grh_bytes: &'a [u8; GRH_LEN],
    body: Body<'a>,
}

impl<'a> FrameV1<'a> {
    /// Reads all headers of a frame.
    ///
    /// # Errors
    /// [`WireError`] says which header is short or wrong.
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
        // What stands behind the packet is Ethernet padding.
        let len = GRH_LEN + usize::from(grh.payload_len);
        let short = LenError::new(Layer::Grh, len, network.len()).beneath(grh_offset);
        let bytes = rest.get(..grh.payload_len.into()).ok_or(short)?;
        let body = Body::parse(bytes).map_err(|error| error.beneath(grh_offset + GRH_LEN))?;
        Ok(Self { link, grh, grh_bytes, body })
    }

    /// Is the ICRC right?
    ///
    /// # Errors
    /// [`BadIcrc`] if it is not.
    pub fn check_icrc(&self) -> Result<(), BadIcrc> {
        let computed = icrc_behind_grh(self.grh_bytes, self.body.before_icrc);
        let carried = self.body.icrc;
        if computed == carried { Ok(()) } else { Err(BadIcrc { computed, carried }) }
    }

    /// Who sent the frame over the last link.
    pub const fn source_mac(&self) -> MacAddr {
        self.link.source
    }

    /// Whom the frame was sent to over the last link.
    pub const fn destination_mac(&self) -> MacAddr {
        self.link.destination
    }

    /// VLAN tags, outermost first; two at most.
    pub fn vlans(&self) -> &[VlanTag] {
        self.link.vlans()
    }

    /// Addresses and what else stands before the BTH.
    pub const fn grh(&self) -> &Grh {
        &self.grh
    }

    /// BTH and extension headers.
    pub const fn headers(&self) -> &Headers {
        &self.body.headers
    }

    /// What the packet carries, without pad.
    pub const fn payload(&self) -> &'a [u8] {
        self.body.payload
    }

    /// The whole packet, from the first byte of the BTH to the last of the ICRC.
    pub const fn bytes(&self) -> &'a [u8] {
        self.body.bytes
    }
}

/// The EtherType of RoCEv1.
pub const ROCE_V1_ETHER_TYPE: u16 = 0x8915;
