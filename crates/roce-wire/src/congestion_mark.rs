//! Marking of frames, as a congested switch does.

use crate::link::{IPV4, IPV6, Link};

/// The ECN field: both bits set are CE, none is Not-ECT.
const CE: u8 = 0b11;

/// Sets CE in the IP header of an Ethernet frame whose sender set ECT, as a switch does whose queue
/// is long. The IPv4 header checksum follows; the ICRC does not cover the field.
///
/// Returns true if the frame has CE now. Other frames (Not-ECT, no IP, too short) stay as they are.
///
/// ```
/// use roce_wire::{Ecn, Frame, OuterHeaders, Sealer, UdpChecksum};
///
/// let mut outer = OuterHeaders::new("10.9.0.1".parse().unwrap(), "10.9.0.2".parse().unwrap());
/// outer.traffic_class = 2; // ECT(0)
/// let mut frame = vec![0; outer.len() + 20];
/// Sealer::new(&outer)?.seal(0xc123, 7, &mut frame, 20, UdpChecksum::Zero)?;
/// assert!(roce_wire::mark_congestion(&mut frame));
/// assert_eq!(Frame::parse(&frame)?.ecn(), Ecn::CongestionExperienced);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
//= rule wire-ecn-mark: RFC 3168 section 5
//# A switch marks only packets of ECN-capable senders.
pub fn mark_congestion(frame: &mut [u8]) -> bool {
    let Ok((link, rest)) = Link::split(frame) else { return false };
    let ip_at = frame.len() - rest.len();
    let ip = &mut frame[ip_at..];
    match link.ether_type {
        IPV4 => mark_ipv4(ip),
        IPV6 => mark_ipv6(ip),
        _ => false,
    }
}

fn mark_ipv4(ip: &mut [u8]) -> bool {
    let Some([_, service, _, _, _, _, _, _, _, _, high, low]) = ip.first_chunk_mut::<12>() else {
        return false;
    };
    if *service & CE == 0 {
        return false;
    }
    //= rule wire-ecn-checksum: RFC 1624 section 3
    //# A changed TOS adds its difference to the header checksum.
    // The checksum is the complement of a sum, which grows by what the field grows (RFC 1624).
    let added = u32::from(CE - (*service & CE));
    let sum = u32::from(!u16::from_be_bytes([*high, *low])) + added;
    [*high, *low] = (!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes();
    *service |= CE;
    true
}

fn mark_ipv6(ip: &mut [u8]) -> bool {
    // The field is the middle of the second byte.
    match ip.get_mut(1) {
        Some(byte) if *byte & (CE << 4) != 0 => {
            *byte |= CE << 4;
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ecn, Frame, OuterHeaders, Sealer, UdpChecksum, VlanTag};

    fn frame(peer: &str, traffic_class: u8, vlan: Option<VlanTag>) -> Vec<u8> {
        let own = if peer.contains(':') { "fd00::1" } else { "10.9.0.1" };
        let mut outer = OuterHeaders::new(own.parse().unwrap(), peer.parse().unwrap());
        outer.traffic_class = traffic_class;
        outer.vlan = vlan;
        let mut frame = vec![0; outer.len() + 20];
        let sealer = Sealer::new(&outer).unwrap();
        sealer.seal(0xc123, 7, &mut frame, 20, UdpChecksum::Zero).unwrap();
        frame
    }

    //= test wire-ecn-checksum
    #[test]
    fn a_marked_frame_is_the_one_that_a_sender_with_ce_would_have_made() {
        for peer in ["10.9.0.2", "fd00::2"] {
            for vlan in [None, Some(VlanTag::new(100, 3, false).unwrap())] {
                for dscp in 0..64 {
                    for ect in [1, 2, 3] {
                        let mut marked = frame(peer, dscp << 2 | ect, vlan);
                        assert!(mark_congestion(&mut marked));
                        assert_eq!(marked, frame(peer, dscp << 2 | 3, vlan));
                    }
                }
            }
        }
    }

    //= test wire-ecn-mark
    #[test]
    fn a_frame_without_ect_is_never_marked() {
        for peer in ["10.9.0.2", "fd00::2"] {
            let original = frame(peer, 26 << 2, None);
            let mut frame = original.clone();
            assert!(!mark_congestion(&mut frame));
            assert_eq!(frame, original);
            assert_eq!(Frame::parse(&frame).unwrap().ecn(), Ecn::NotCapable);
        }
    }

    #[test]
    fn no_prefix_and_no_other_frame_is_harmed() {
        for peer in ["10.9.0.2", "fd00::2"] {
            let whole = frame(peer, 2, None);
            for len in 0..26 {
                let mut prefix = whole[..len].to_vec();
                if !mark_congestion(&mut prefix) {
                    assert_eq!(prefix, whole[..len]);
                }
            }
        }
        let mut arp = [0xff; 60];
        arp[12..14].copy_from_slice(&[0x08, 0x06]);
        assert!(!mark_congestion(&mut arp));
    }
}
