//! The virtio header before each frame (PACKET_VNET_HDR), which marks trains.

use crate::{
    device::{DeviceCapabilities, TxFrame},
    error::DeviceError,
};

/// Bytes of the header.
pub(crate) const HEADER_LEN: usize = 10;

/// Maximum bytes of a frame to send: the kernel segments longer ones, and an IP packet has at most
/// 65 535.
pub(crate) const MAX_FRAME_LEN: usize = 65_535;

/// Maximum bytes of a received frame: an Ethernet header with two VLAN tags, and the longest IP packet.
pub(crate) const MAX_RECEIVED_LEN: usize = 65_535 + 22;

/// Returns the header of a frame that has passed [`check`]. The kernel takes a train of one packet
/// as a single packet whose checksum it completes.
pub(crate) fn tx_header(tx_frame: &TxFrame) -> [u8; HEADER_LEN] {
    let Some(segment_len) = tx_frame.segment_len else { return [0; HEADER_LEN] };
    let is_train = tx_frame.len - tx_frame.headers_len > segment_len;
    let (kind, size) = if is_train { (GSO_UDP_L4, segment_len as u16) } else { (GSO_NONE, 0) };
    let [hdr_len, size, start, offset] = [
        tx_frame.headers_len as u16,
        size,
        (tx_frame.headers_len - UDP_LEN) as u16,
        UDP_CHECKSUM_AT,
    ]
    .map(u16::to_ne_bytes);
    let mut header = [0; HEADER_LEN];
    header[..2].copy_from_slice(&[NEEDS_CSUM, kind]);
    for (field, value) in header[2..].chunks_exact_mut(2).zip([hdr_len, size, start, offset]) {
        field.copy_from_slice(&value);
    }
    header
}

/// The contents of the header of a received frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RxHeader {
    /// UDP payload bytes of each packet of a train.
    pub(crate) segment_len: Option<usize>,
    /// The UDP checksum is partial.
    pub(crate) checksum_partial: bool,
}

impl RxHeader {
    /// Returns `None` for a train of an unknown kind.
    pub(crate) fn parse(header: &[u8; HEADER_LEN]) -> Option<Self> {
        let [flags, kind, _, _, size_0, size_1, ..] = *header;
        let checksum_partial = flags & NEEDS_CSUM != 0;
        match (kind, u16::from_ne_bytes([size_0, size_1])) {
            (GSO_NONE, _) => Some(Self { segment_len: None, checksum_partial }),
            (GSO_UDP_L4, size @ 1..) => {
                Some(Self { segment_len: Some(size.into()), checksum_partial })
            }
            _ => None,
        }
    }
}

/// Checks a frame against the device's capabilities; returns its bytes.
pub(crate) fn check<'a>(
    slot: &'a [u8],
    tx_frame: &TxFrame,
    capabilities: &DeviceCapabilities,
    name: &str,
) -> Result<&'a [u8], DeviceError> {
    let bad = |what| Err(DeviceError::BadFrame { what });
    let TxFrame { len, segment_len, headers_len } = *tx_frame;
    let Some(frame) = slot.get(..len) else { return bad("it is longer than its slot") };
    let Some(ip_at) = ip_offset(frame) else { return bad("it has no whole Ethernet header") };
    let packet_len = match segment_len {
        None => len - ip_at,
        Some(0) => return bad("a train of empty packets"),
        Some(_) if headers_len < ip_at + IPV4_LEN + UDP_LEN || headers_len >= len => {
            return bad("a train without IP and UDP headers, or without payload");
        }
        Some(segment_len) => {
            let payload = len - headers_len;
            if payload.div_ceil(segment_len) > capabilities.max_train_packets.max(1) {
                return bad("more packets than a train may hold on this interface");
            }
            headers_len - ip_at + segment_len.min(payload)
        }
    };
    if packet_len > capabilities.mtu {
        let (name, mtu) = (name.to_owned(), capabilities.mtu);
        return Err(DeviceError::SegmentTooLong { name, packet_len, mtu });
    }
    Ok(frame)
}

/// Returns the offset of the IP header; VLAN tags do not count against the MTU.
fn ip_offset(frame: &[u8]) -> Option<usize> {
    let mut at = ETHERNET_LEN;
    for _ in 0..MAX_VLAN_TAGS {
        match *frame.get(at - 2..at)? {
            [0x81, 0x00] | [0x88, 0xa8] => at += VLAN_LEN,
            _ => break,
        }
    }
    (at <= frame.len()).then_some(at)
}

const ETHERNET_LEN: usize = 14;
const VLAN_LEN: usize = 4;
const MAX_VLAN_TAGS: usize = 2;
const IPV4_LEN: usize = 20;
const UDP_LEN: usize = 8;
const UDP_CHECKSUM_AT: u16 = 6;

const NEEDS_CSUM: u8 = 1;
const GSO_NONE: u8 = 0;
const GSO_UDP_L4: u8 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    const CAPABILITIES: DeviceCapabilities =
        DeviceCapabilities { mtu: 1500, max_frame_len: 65_535, max_train_packets: 64 };

    #[test]
    fn the_header_of_a_train_has_its_checksum_and_segment_offsets() {
        let header = tx_header(&TxFrame::train(42 + 3 * 1040, 42, 1040));
        let fields = [42u16, 1040, 34, 6].map(u16::to_ne_bytes).concat();
        assert_eq!((&header[..2], &header[2..]), (&[1u8, 5][..], &fields[..]));
    }

    #[test]
    fn a_train_of_one_is_a_packet_with_a_partial_checksum() {
        let header = tx_header(&TxFrame::train(42 + 1040, 42, 1040));
        assert_eq!(
            RxHeader::parse(&header),
            Some(RxHeader { segment_len: None, checksum_partial: true })
        );
    }

    #[test]
    fn a_single_packet_is_sent_unchanged() {
        assert_eq!(tx_header(&TxFrame::single(60)), [0; HEADER_LEN]);
    }

    #[test]
    fn a_sent_train_is_received_as_one() {
        let header = tx_header(&TxFrame::train(9000, 62, 1040));
        assert_eq!(
            RxHeader::parse(&header),
            Some(RxHeader { segment_len: Some(1040), checksum_partial: true })
        );
    }

    #[test]
    fn a_train_of_an_unknown_kind_or_without_segments_is_refused() {
        assert_eq!(RxHeader::parse(&[1, 1, 0, 0, 5, 5, 0, 0, 0, 0]), None);
        assert_eq!(RxHeader::parse(&[1, 5, 0, 0, 0, 0, 0, 0, 0, 0]), None);
    }

    #[test]
    fn a_segment_may_reach_the_mtu_and_no_further() {
        let slot = vec![0; 20_000];
        let train = |segment_len| TxFrame::train(42 + 4 * segment_len, 42, segment_len);
        assert!(check(&slot, &train(1472), &CAPABILITIES, "eth0").is_ok());
        assert_eq!(
            check(&slot, &train(1473), &CAPABILITIES, "eth0"),
            Err(DeviceError::SegmentTooLong { name: "eth0".into(), packet_len: 1501, mtu: 1500 })
        );
        assert!(check(&slot, &TxFrame::single(1514), &CAPABILITIES, "eth0").is_ok());
        assert!(check(&slot, &TxFrame::single(1515), &CAPABILITIES, "eth0").is_err());
    }

    #[test]
    fn a_vlan_tag_does_not_count_against_the_mtu() {
        let mut slot = vec![0; 20_000];
        slot[12..14].copy_from_slice(&[0x81, 0x00]);
        assert!(
            check(&slot, &TxFrame::train(46 + 2 * 1472, 46, 1472), &CAPABILITIES, "eth0").is_ok()
        );
        assert!(
            check(&slot, &TxFrame::train(46 + 2 * 1473, 46, 1473), &CAPABILITIES, "eth0").is_err()
        );
        assert!(check(&slot, &TxFrame::single(1518), &CAPABILITIES, "eth0").is_ok());
    }

    #[test]
    fn a_train_holds_no_more_packets_than_the_device_takes() {
        let slot = vec![0; 20_000];
        assert!(
            check(&slot, &TxFrame::train(42 + 64 * 100, 42, 100), &CAPABILITIES, "eth0").is_ok()
        );
        assert!(
            check(&slot, &TxFrame::train(43 + 64 * 100, 42, 100), &CAPABILITIES, "eth0").is_err()
        );
    }

    #[test]
    fn no_contents_of_a_slot_cause_a_panic() {
        let slot = [0x81, 0, 0x81, 0].repeat(20);
        for len in 0..=slot.len() + 1 {
            for headers_len in 0..=slot.len() + 1 {
                for segment_len in [None, Some(0), Some(1), Some(usize::MAX)] {
                    let tx_frame = TxFrame { len, segment_len, headers_len };
                    if check(&slot, &tx_frame, &CAPABILITIES, "eth0").is_ok() {
                        tx_header(&tx_frame);
                    }
                }
            }
        }
    }
}
