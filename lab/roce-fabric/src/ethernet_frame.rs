//! Real Ethernet frames on a fabric.

use bytes::{Bytes, BytesMut};
use roce_wire::Ecn;

use crate::{FabricFrame, SwitchFrame};

/// An Ethernet frame with its bytes, for engines as hosts of a [`Fabric`](crate::Fabric).
///
/// A switch that marks it rewrites the IP header, as [`roce_wire::mark_congestion`] does.
///
/// ```
/// use roce_fabric::{EthernetFrame, SwitchFrame};
/// use roce_wire::{Bth, Ecn, Headers, OuterHeaders, Psn, Qpn, UdpChecksum, opcode, seal};
///
/// let mut outer = OuterHeaders::new("10.9.0.1".parse().unwrap(), "10.9.0.2".parse().unwrap());
/// outer.traffic_class = 26 << 2 | 0b10; // DSCP 26, ECT(0)
/// let bth = Bth::new(opcode::RC_SEND_ONLY, Qpn::new(0x11).unwrap(), Psn::ZERO);
/// let mut bytes = vec![0; outer.len() + 20];
/// let len = Headers::new(bth).emit_around(&mut bytes[outer.len()..], 4);
/// seal(&outer, 7, &mut bytes, len, UdpChecksum::Zero).unwrap();
///
/// let mut frame = EthernetFrame::new(bytes, outer.traffic_class, 3, 1, 0);
/// assert!(frame.is_ecn_capable());
/// frame.mark_ce();
/// let marked = roce_wire::Frame::parse(frame.bytes()).unwrap();
/// assert_eq!(marked.ecn(), Ecn::CongestionExperienced);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EthernetFrame {
    bytes: Bytes,
    ecn: Ecn,
    class: usize,
    destination: usize,
    flow_hash: u64,
}

impl EthernetFrame {
    /// Creates a frame without preamble and FCS, in a class of the switches, to a host by its index.
    /// `traffic_class` is that of its IP header, `flow_hash` a hash of its five-tuple.
    pub fn new(
        bytes: impl Into<Bytes>,
        traffic_class: u8,
        class: usize,
        destination: usize,
        flow_hash: u64,
    ) -> Self {
        let ecn = Ecn::from_traffic_class(traffic_class);
        Self { bytes: bytes.into(), ecn, class, destination, flow_hash }
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the bytes by value.
    pub fn into_bytes(self) -> Bytes {
        self.bytes
    }
}

impl SwitchFrame for EthernetFrame {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn class(&self) -> usize {
        self.class
    }

    fn is_ecn_capable(&self) -> bool {
        self.ecn != Ecn::NotCapable
    }

    fn mark_ce(&mut self) {
        let mut marked = BytesMut::from(std::mem::take(&mut self.bytes));
        if roce_wire::mark_congestion(&mut marked) {
            self.ecn = Ecn::CongestionExperienced;
        }
        self.bytes = marked.freeze();
    }
}

impl FabricFrame for EthernetFrame {
    fn destination(&self) -> usize {
        self.destination
    }

    fn flow_hash(&self) -> u64 {
        self.flow_hash
    }
}
