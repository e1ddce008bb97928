//! A frame on its way through the switch.

use roce_fabric::{FabricFrame, SwitchFrame};

/// A frame for one port, with its VLAN tags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EthernetFrame {
    pub(crate) bytes: Box<[u8]>,
    destination: usize,
    class: usize,
    is_ecn_capable: bool,
}

impl EthernetFrame {
    /// Creates a frame for port `destination`.
    pub(crate) fn new(bytes: &[u8], destination: usize) -> Self {
        let traffic_class = traffic_class(bytes);
        Self {
            bytes: bytes.into(),
            destination,
            class: usize::from(traffic_class >> 5),
            is_ecn_capable: traffic_class & ECN != 0,
        }
    }
}

impl SwitchFrame for EthernetFrame {
    fn len(&self) -> u64 {
        (self.bytes.len() as u64).max(MIN_FRAME)
    }

    fn class(&self) -> usize {
        self.class
    }

    fn is_ecn_capable(&self) -> bool {
        self.is_ecn_capable
    }

    fn mark_ce(&mut self) {
        roce_wire::mark_congestion(&mut self.bytes);
    }
}

impl FabricFrame for EthernetFrame {
    fn destination(&self) -> usize {
        self.destination
    }
}

/// Returns the class of a frame: the upper three bits of its DSCP, 0 if it is not IP.
pub(crate) fn class_of(frame: &[u8]) -> usize {
    usize::from(traffic_class(frame) >> 5)
}

/// Returns the traffic class of an IP packet, DSCP and ECN; 0 for others.
fn traffic_class(frame: &[u8]) -> u8 {
    let at = |index: usize| frame.get(index).copied().unwrap_or(0);
    match ip_header(frame) {
        Some((IPV4, ip)) => at(ip + 1),
        Some((IPV6, ip)) => at(ip) << 4 | at(ip + 1) >> 4,
        _ => 0,
    }
}

/// Returns the EtherType behind up to two VLAN tags, and the offset of what follows it.
pub(crate) fn ip_header(frame: &[u8]) -> Option<(u16, usize)> {
    let ether_type =
        |at: usize| Some(u16::from_be_bytes([*frame.get(at - 2)?, *frame.get(at - 1)?]));
    let mut at = ETHERNET_LEN;
    for _ in 0..MAX_VLAN_TAGS {
        if matches!(ether_type(at)?, 0x8100 | 0x88a8) {
            at += VLAN_LEN;
        }
    }
    Some((ether_type(at)?, at))
}

/// EtherTypes.
pub(crate) const IPV4: u16 = 0x0800;
pub(crate) const IPV6: u16 = 0x86dd;

/// Bytes of an Ethernet header, and of a tag in it.
pub(crate) const ETHERNET_LEN: usize = 14;
pub(crate) const VLAN_LEN: usize = 4;
/// Tags that the class is sought behind.
const MAX_VLAN_TAGS: usize = 2;

const ECN: u8 = 0b11;

/// Bytes of the smallest frame on a wire, without FCS.
const MIN_FRAME: u64 = 60;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use roce_wire::OuterHeaders;

    const TAG: [u8; 4] = [0x81, 0x00, 0xa0, 0x05];
    const OUTER_TAG: [u8; 4] = [0x88, 0xa8, 0xe0, 0x07];

    fn tagged(frame: &[u8], tags: &[u8]) -> Vec<u8> {
        [&frame[..12], tags, &frame[12..]].concat()
    }

    fn frame(peer: &str, traffic_class: u8) -> Vec<u8> {
        let own = if peer.contains(':') { "fd00::1" } else { "10.0.0.1" };
        let mut outer = OuterHeaders::new(own.parse().unwrap(), peer.parse().unwrap());
        outer.traffic_class = traffic_class;
        let mut frame = vec![0; outer.len() + 20];
        let sealer = roce_wire::Sealer::new(&outer).unwrap();
        sealer.seal(0xc123, 7, &mut frame, 20, roce_wire::UdpChecksum::Zero).unwrap();
        frame
    }

    #[test]
    fn the_class_is_the_upper_three_bits_of_the_dscp() {
        for peer in ["10.0.0.2", "fd00::2"] {
            for (traffic_class, class, ecn) in [(0, 0, false), (106, 3, true), (192, 6, false)] {
                let frame = EthernetFrame::new(&frame(peer, traffic_class), 1);
                assert_eq!((frame.class(), frame.is_ecn_capable()), (class, ecn), "{peer}");
            }
        }
    }

    #[test]
    fn the_class_of_a_tagged_frame_is_that_of_its_dscp_too() {
        for peer in ["10.0.0.2", "fd00::2"] {
            for tags in [&TAG[..], &[OUTER_TAG, TAG].concat()] {
                let tagged = EthernetFrame::new(&tagged(&frame(peer, 106), tags), 1);
                assert_eq!((tagged.class(), tagged.is_ecn_capable()), (3, true), "{peer}");
            }
        }
    }

    #[test]
    fn only_a_frame_with_ect_becomes_ce() {
        for peer in ["10.0.0.2", "fd00::2"] {
            for tags in [&[][..], &TAG[..], &[OUTER_TAG, TAG].concat()] {
                let mut marked = EthernetFrame::new(&tagged(&frame(peer, 106), tags), 1);
                marked.mark_ce();
                assert_eq!(marked.bytes[..], tagged(&frame(peer, 107), tags)[..]);
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_have_a_class_and_a_length(bytes: Vec<u8>) {
            let mut frame = EthernetFrame::new(&bytes, 0);
            prop_assert!(frame.class() < 8 && frame.len() >= 60);
            frame.mark_ce();
            prop_assert_eq!(frame.bytes.len(), bytes.len());
        }
    }
}
