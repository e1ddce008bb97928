//! Fast path of the parser: IPv4 without options or a VLAN tag, and no UDP checksum to verify.

use etherparse::IpNumber;

use crate::ROCE_V2_PORT;
use crate::icrc::{IPV4_LEN, UDP_LEN};
use crate::link::{self, ETHERNET_LEN, Link};

/// A frame with valid headers of that form, not yet parsed.
pub(super) struct FastPath<'a> {
    pub(super) link: Link,
    pub(super) header: &'a [u8; IPV4_LEN],
    pub(super) udp: &'a [u8; UDP_LEN],
    pub(super) payload: &'a [u8],
}

impl<'a> FastPath<'a> {
    /// Returns `None` for any other frame, valid or not. The result equals that of
    /// the general path, in a third of the instructions.
    #[inline]
    pub(super) fn of(bytes: &'a [u8], udp_checksum_offloaded: bool) -> Option<Self> {
        let headers = bytes.first_chunk::<USUAL_LEN>()?;
        let (ethernet, rest) = headers.split_first_chunk::<ETHERNET_LEN>()?;
        let (header, udp) = rest.split_first_chunk::<IPV4_LEN>()?;
        let udp = udp.first_chunk::<UDP_LEN>()?;
        let link = Link::untagged(ethernet, link::IPV4)?;
        // A ones' complement sum does not depend on the order of words or of bytes.
        let words =
            header.chunks_exact(4).map(|it| u32::from_ne_bytes([it[0], it[1], it[2], it[3]]));
        let sum: u64 = words.map(u64::from).sum();
        let sum = (sum & 0xffff_ffff) + (sum >> 32);
        let sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
        let is_right = (sum & 0xffff) + (sum >> 16) == 0xffff;
        let is_fragment = header[6] & 0x3f != 0 || header[7] != 0;
        if header[0] != 0x45 || header[9] != IpNumber::UDP.0 || is_fragment || !is_right {
            return None;
        }
        let total_len = usize::from(word(header, 2));
        let payload = bytes.get(USUAL_LEN..ETHERNET_LEN + total_len)?;
        let is_plain = word(udp, 2) == ROCE_V2_PORT
            && usize::from(word(udp, 4)) == UDP_LEN + payload.len()
            && (word(udp, 6) == 0 || udp_checksum_offloaded);
        is_plain.then_some(Self { link, header, udp, payload })
    }
}

/// Reads a field of two bytes.
#[inline]
pub(super) fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Ethernet, IPv4 and UDP headers.
pub(super) const USUAL_LEN: usize = ETHERNET_LEN + IPV4_LEN + UDP_LEN;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Bth, Frame, Headers, OuterHeaders, ParseOptions, Psn, Qpn, UdpChecksum, opcode, seal,
    };
    use proptest::prelude::*;

    fn frame(checksum: UdpChecksum) -> Vec<u8> {
        let outer = OuterHeaders::new("10.9.0.1".parse().unwrap(), "10.9.0.2".parse().unwrap());
        let bth = Bth::new(opcode::RC_SEND_ONLY, Qpn::new(0x12).unwrap(), Psn::ZERO);
        let mut frame = vec![0; USUAL_LEN + 28];
        let segment_len = Headers::new(bth).emit_around(&mut frame[USUAL_LEN..], 12);
        seal(&outer, 0x1234, &mut frame, segment_len, checksum).unwrap();
        frame
    }

    #[test]
    fn frames_of_this_stack_take_the_fast_path() {
        let plain = frame(UdpChecksum::Zero);
        assert!(FastPath::of(&plain, false).is_some());
        let train = frame(UdpChecksum::PartialForOffload);
        assert!(FastPath::of(&train, false).is_none());
        assert!(FastPath::of(&train, true).is_some());
    }

    proptest! {
        #[test]
        fn the_fast_path_parses_as_the_general_path_does(
            changes in prop::collection::vec((0..USUAL_LEN, any::<u8>()), 0..3),
            udp_checksum_offloaded: bool,
            rights_the_checksum: bool,
            len in 0..USUAL_LEN + 40,
        ) {
            let mut bytes = frame(UdpChecksum::Zero);
            changes.into_iter().for_each(|(at, value)| bytes[at] = value);
            if rights_the_checksum {
                bytes[24..26].fill(0);
                let sum = etherparse::checksum::Sum16BitWords::new().add_slice(&bytes[14..34]);
                bytes[24..26].copy_from_slice(&sum.ones_complement().to_be().to_be_bytes());
            }
            // Most are whole or padded.
            bytes.resize(if len < USUAL_LEN { bytes.len() + len } else { len }, 0);
            let options = ParseOptions { udp_checksum_offloaded };
            if let Some(path) = FastPath::of(&bytes, udp_checksum_offloaded) {
                prop_assert_eq!(Frame::parse_any(&bytes, options), Ok(Frame::of_fast_path(path)));
            }
        }
    }
}
