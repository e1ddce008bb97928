//! Checksums that a sender left to its interface.

use crate::ethernet_frame::{IPV4, IPV6, ip_header};

/// Completes the TCP or UDP checksum of a packet whose field holds only the folded sum over the
/// pseudo-header, as the kernel hands it to an interface that computes checksums. Other frames stay
/// as they are.
pub(crate) fn complete(frame: &mut [u8]) {
    let Some((start, end, field)) = layout(frame) else { return };
    let Some(transport) = frame.get_mut(start..end) else { return };
    if transport.len() < field + 2 {
        return;
    }
    let pairs = transport.chunks(2).map(|pair| match *pair {
        [high, low] => u64::from(u16::from_be_bytes([high, low])),
        [high] => u64::from(high) << 8,
        _ => 0,
    });
    let mut sum: u64 = pairs.sum();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    // A UDP checksum of zero would mean that there is none; TCP takes both forms of zero.
    let checksum = match !(sum as u16) {
        0 => 0xffff,
        checksum => checksum,
    };
    transport[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
}

/// Returns where the transport header starts, where the packet ends, and the checksum's offset in the
/// transport header.
fn layout(frame: &[u8]) -> Option<(usize, usize, usize)> {
    let half = |at: usize| Some(u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?]));
    let (protocol, start, end) = match ip_header(frame)? {
        (IPV4, ip) => {
            let header_len = usize::from(*frame.get(ip)? & 0xf) * 4;
            let end = ip + usize::from(half(ip + 2)?);
            (*frame.get(ip + 9)?, ip + header_len, end)
        }
        (IPV6, ip) => {
            let start = ip + IPV6_LEN;
            let end = start + usize::from(half(ip + 4)?);
            (*frame.get(ip + 6)?, start, end)
        }
        _ => return None,
    };
    match protocol {
        TCP => Some((start, end, 16)),
        UDP => Some((start, end, 6)),
        _ => None,
    }
}

const IPV6_LEN: usize = 40;
const TCP: u8 = 6;
const UDP: u8 = 17;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the sum of 16-bit words, folded.
    fn sum(bytes: &[u8]) -> u16 {
        let pair = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        let sum: u32 = bytes.chunks(2).map(pair).sum();
        let sum = (sum & 0xffff) + (sum >> 16);
        ((sum & 0xffff) + (sum >> 16)) as u16
    }

    /// Returns a frame with a partial checksum, and its pseudo-header.
    fn frame(protocol: u8, is_ipv4: bool, payload: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let header_len = if protocol == TCP { 20 } else { 8 };
        let mut transport = vec![0x11; header_len];
        transport.extend_from_slice(payload);
        let len = transport.len() as u16;
        let mut frame = vec![2; 12];
        let mut pseudo;
        if is_ipv4 {
            frame.extend([0x08, 0, 0x45, 0]);
            frame.extend((len + 20).to_be_bytes());
            frame.extend([0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
            pseudo = frame[26..34].to_vec();
        } else {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend(len.to_be_bytes());
            frame.extend([protocol, 64]);
            frame.extend([0xfd; 32]);
            pseudo = frame[22..54].to_vec();
        }
        pseudo.extend([0, protocol]);
        pseudo.extend(len.to_be_bytes());
        let field = if protocol == TCP { 16 } else { 6 };
        transport[field..field + 2].copy_from_slice(&sum(&pseudo).to_be_bytes());
        frame.extend(transport);
        (frame, pseudo)
    }

    proptest! {
        #[test]
        fn a_completed_checksum_sums_up_to_all_ones(
            payload: Vec<u8>, is_tcp: bool, is_ipv4: bool, is_tagged: bool, padding in 0usize..8,
        ) {
            let protocol = if is_tcp { TCP } else { UDP };
            let (mut frame, mut pseudo) = frame(protocol, is_ipv4, &payload);
            if is_tagged {
                frame.splice(12..12, [0x81, 0x00, 0x00, 0x05]);
            }
            let start = frame.len() - payload.len() - if is_tcp { 20 } else { 8 };
            let end = frame.len();
            frame.extend(vec![0xee; padding]);
            complete(&mut frame);
            pseudo.extend(&frame[start..end]);
            prop_assert_eq!(sum(&pseudo), 0xffff);
        }

        #[test]
        fn any_bytes_are_taken(mut bytes: Vec<u8>, ether_type in 0usize..4, protocol: u8) {
            if bytes.len() > 24 {
                let types = [[8u8, 0], [0x86, 0xdd], [8, 6], [0x81, 0]];
                bytes[12..14].copy_from_slice(&types[ether_type]);
                bytes[if ether_type == 0 { 23 } else { 20 }] = protocol % 20;
            }
            complete(&mut bytes);
        }
    }
}
