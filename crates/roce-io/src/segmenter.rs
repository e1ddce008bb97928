//! Segments a train into the packets that the kernel would send, for captures and fault injection.
//!
//! Transmitted trains are segmented by the kernel or the card: see `vnet_hdr` and `af_packet`.

use etherparse::{
    EtherType, IpNumber, Ipv4HeaderSlice, Ipv6HeaderSlice, UdpHeader, UdpHeaderSlice, ether_type,
    ip_number,
};

use crate::device::{RxFrame, TxFrame};

/// The UDP checksum of segmented packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentChecksum {
    /// Zero, as RoCEv2 endpoints send.
    Zero,
    /// The complete checksum, as the kernel writes when it segments.
    Completed,
}

/// Segments trains as the kernel does: the IPv4 identification increments from the train's, lengths
/// and IPv4 header checksum are each packet's own, all other header fields are copied.
///
/// ```
/// use roce_io::{Segmenter, RxFrame, SegmentChecksum};
///
/// let not_ip = [0u8; 60];
/// let frame = RxFrame::packet(&not_ip);
/// let count = Segmenter::default().segment(frame, SegmentChecksum::Zero, &mut |packet| {
///     assert_eq!(packet, not_ip); // lent unchanged
/// });
/// assert_eq!(count, 1);
/// ```
#[derive(Debug, Default)]
pub struct Segmenter {
    packet: Vec<u8>,
}

impl Segmenter {
    /// Lends each packet of `frame` to `on_packet`, in order; returns how many. A frame that is not
    /// UDP over IP, or is a single packet with a complete checksum, is lent unchanged.
    pub fn segment(
        &mut self,
        frame: RxFrame<'_>,
        checksum: SegmentChecksum,
        on_packet: &mut dyn FnMut(&[u8]),
    ) -> usize {
        let is_whole = frame.segment_len.is_none() && !frame.udp_checksum_partial;
        let Some(datagram) = Some(frame.bytes).filter(|_| !is_whole).and_then(Datagram::find)
        else {
            on_packet(frame.bytes);
            return 1;
        };
        let payload = &frame.bytes[datagram.payload_at..datagram.end];
        let segment_len = frame.segment_len.unwrap_or(payload.len()).max(1);
        let mut count = 0;
        let mut on_segment = |segment: &[u8]| {
            self.packet.clear();
            self.packet.extend_from_slice(&frame.bytes[..datagram.payload_at]);
            self.packet.extend_from_slice(segment);
            datagram.write_headers(&mut self.packet, count as u16, checksum);
            on_packet(&self.packet);
            count += 1;
        };
        if payload.is_empty() {
            on_segment(payload);
        } else {
            payload.chunks(segment_len).for_each(on_segment);
        }
        count
    }
}

impl<'a> RxFrame<'a> {
    /// Returns the frame as the peer would receive it.
    pub(crate) fn from_tx(slot: &'a [u8], tx_frame: &TxFrame) -> Option<Self> {
        Some(Self {
            bytes: slot.get(..tx_frame.len)?,
            segment_len: tx_frame.segment_len,
            udp_checksum_partial: tx_frame.segment_len.is_some(),
            vlan_tag: None,
        })
    }
}

/// Offsets of the parts of a UDP datagram over IP in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Datagram {
    ip_at: usize,
    is_ipv4: bool,
    udp_at: usize,
    payload_at: usize,
    /// End of the datagram; Ethernet padding may follow.
    end: usize,
}

impl Datagram {
    fn find(frame: &[u8]) -> Option<Self> {
        let mut ip_at = 14;
        let mut ether_type = u16::from_be_bytes(*frame.get(12..14)?.first_chunk()?);
        for _ in 0..2 {
            if matches!(
                EtherType(ether_type),
                ether_type::VLAN_TAGGED_FRAME | ether_type::PROVIDER_BRIDGING
            ) {
                ether_type = u16::from_be_bytes(*frame.get(ip_at + 2..ip_at + 4)?.first_chunk()?);
                ip_at += 4;
            }
        }
        let ip = frame.get(ip_at..)?;
        let (is_ipv4, protocol, header_len, ip_len) = match EtherType(ether_type) {
            ether_type::IPV4 => {
                let header = Ipv4HeaderSlice::from_slice(ip).ok()?;
                let ip_len = usize::from(header.total_len());
                (true, header.protocol(), header.slice().len(), ip_len)
            }
            ether_type::IPV6 => {
                let header = Ipv6HeaderSlice::from_slice(ip).ok()?;
                let ip_len = header.slice().len() + usize::from(header.payload_length());
                (false, header.next_header(), header.slice().len(), ip_len)
            }
            _ => return None,
        };
        if IpNumber(protocol.0) != ip_number::UDP {
            return None;
        }
        let udp_at = ip_at + header_len;
        let payload_at = udp_at + UdpHeader::LEN;
        let end = ip_at + ip_len;
        (payload_at <= end && end <= frame.len()).then_some(Self {
            ip_at,
            is_ipv4,
            udp_at,
            payload_at,
            end,
        })
    }

    /// Completes the headers of packet `number`; `packet` begins with a copy of the train's.
    fn write_headers(&self, packet: &mut [u8], number: u16, checksum: SegmentChecksum) {
        let udp_len = (packet.len() - self.udp_at) as u16;
        let (ip, udp) = packet[self.ip_at..].split_at_mut(self.udp_at - self.ip_at);
        udp[4..6].copy_from_slice(&udp_len.to_be_bytes());
        udp[6..8].fill(0);
        let sum = if self.is_ipv4 {
            let ip_len = ip.len() as u16 + udp_len;
            let identification = u16::from_be_bytes([ip[4], ip[5]]).wrapping_add(number);
            ip[2..4].copy_from_slice(&ip_len.to_be_bytes());
            ip[4..6].copy_from_slice(&identification.to_be_bytes());
            ipv4_checksums(ip, udp, checksum)
        } else {
            ip[4..6].copy_from_slice(&udp_len.to_be_bytes());
            ipv6_checksum(ip, udp, checksum)
        };
        udp[6..8].copy_from_slice(&sum.unwrap_or(0).to_be_bytes());
    }
}

/// Writes the IPv4 header checksum; returns the UDP checksum.
fn ipv4_checksums(ip: &mut [u8], udp: &[u8], checksum: SegmentChecksum) -> Option<u16> {
    let header = Ipv4HeaderSlice::from_slice(ip).ok()?.to_header();
    ip[10..12].copy_from_slice(&header.calc_header_checksum().to_be_bytes());
    if checksum == SegmentChecksum::Zero {
        return None;
    }
    let (udp, payload) = udp_parts(udp)?;
    udp.calc_checksum_ipv4_raw(header.source, header.destination, payload).ok()
}

fn ipv6_checksum(ip: &[u8], udp: &[u8], checksum: SegmentChecksum) -> Option<u16> {
    if checksum == SegmentChecksum::Zero {
        return None;
    }
    let ip = Ipv6HeaderSlice::from_slice(ip).ok()?.to_header();
    let (udp, payload) = udp_parts(udp)?;
    udp.calc_checksum_ipv6_raw(ip.source, ip.destination, payload).ok()
}

fn udp_parts(udp: &[u8]) -> Option<(UdpHeader, &[u8])> {
    let header = UdpHeaderSlice::from_slice(udp).ok()?.to_header();
    Some((header, &udp[UdpHeader::LEN..]))
}

#[cfg(test)]
pub(crate) mod tests {
    use etherparse::{PacketBuilder, SlicedPacket, TransportSlice};
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn ipv4_frame(port: u16, payload: &[u8]) -> Vec<u8> {
        let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
            .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
            .udp(0xc123, port);
        let mut frame = Vec::new();
        builder.write(&mut frame, payload).unwrap();
        frame
    }

    pub(crate) fn ipv6_frame(port: u16, payload: &[u8]) -> Vec<u8> {
        let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
            .ipv6([0xfd; 16], [0xfe; 16], 64)
            .udp(0xc123, port);
        let mut frame = Vec::new();
        builder.write(&mut frame, payload).unwrap();
        frame
    }

    /// Inserts a VLAN tag.
    pub(crate) fn tagged(frame: &[u8]) -> Vec<u8> {
        [&frame[..12], &[0x81, 0x00, 0x00, 0x05], &frame[12..]].concat()
    }

    fn with_identification(mut frame: Vec<u8>, ip_at: usize, identification: u16) -> Vec<u8> {
        frame[ip_at + 4..ip_at + 6].copy_from_slice(&identification.to_be_bytes());
        frame
    }

    fn segmented(
        frame: &[u8],
        segment_len: Option<usize>,
        checksum: SegmentChecksum,
    ) -> Vec<Vec<u8>> {
        let frame = RxFrame { segment_len, udp_checksum_partial: true, ..RxFrame::packet(frame) };
        let mut packets = Vec::new();
        let count =
            Segmenter::default().segment(frame, checksum, &mut |p| packets.push(p.to_vec()));
        assert_eq!(count, packets.len());
        packets
    }

    /// Verifies every length and checksum; returns the UDP payload and the IPv4 identification.
    pub(crate) fn verified(packet: &[u8]) -> (Vec<u8>, Option<u16>) {
        let sliced = SlicedPacket::from_ethernet(packet).unwrap();
        let Some(TransportSlice::Udp(udp)) = sliced.transport else { panic!("no UDP") };
        assert_eq!(usize::from(udp.length()), udp.slice().len());
        let (sum, identification) = match sliced.net.unwrap() {
            etherparse::NetSlice::Ipv4(ip) => {
                let header = ip.header().to_header();
                assert_eq!(header.header_checksum, header.calc_header_checksum());
                assert_eq!(usize::from(header.total_len), 20 + udp.slice().len());
                let (source, destination) = (header.source, header.destination);
                let sum =
                    udp.to_header().calc_checksum_ipv4_raw(source, destination, udp.payload());
                (sum.unwrap(), Some(header.identification))
            }
            etherparse::NetSlice::Ipv6(ip) => {
                let header = ip.header().to_header();
                assert_eq!(usize::from(header.payload_length), udp.slice().len());
                let (source, destination) = (header.source, header.destination);
                let sum =
                    udp.to_header().calc_checksum_ipv6_raw(source, destination, udp.payload());
                (sum.unwrap(), None)
            }
            other => panic!("no IP: {other:?}"),
        };
        if udp.checksum() != 0 {
            assert_eq!(udp.checksum(), sum, "UDP checksum");
        }
        (udp.payload().to_vec(), identification)
    }

    proptest! {
        #[test]
        fn the_packets_of_a_segmented_train_join_to_its_payload(
            payload in prop::collection::vec(any::<u8>(), 1..5000),
            segment_len in 1usize..1500,
            identification in any::<u16>(),
            completed in any::<bool>(),
            is_ipv4 in any::<bool>(),
            is_tagged in any::<bool>(),
        ) {
            let checksum = if completed { SegmentChecksum::Completed } else { SegmentChecksum::Zero };
            let mut frame = if is_ipv4 {
                with_identification(ipv4_frame(4791, &payload), 14, identification)
            } else {
                ipv6_frame(4791, &payload)
            };
            if is_tagged {
                frame = tagged(&frame);
            }
            let headers = frame.len() - payload.len();
            let packets = segmented(&frame, Some(segment_len), checksum);
            let mut together = Vec::new();
            for (number, packet) in packets.iter().enumerate() {
                let (part, found) = verified(packet);
                if number + 1 < packets.len() {
                    prop_assert_eq!(part.len(), segment_len);
                }
                if is_ipv4 {
                    prop_assert_eq!(found, Some(identification.wrapping_add(number as u16)));
                }
                let udp_checksum = &packet[headers - 2..headers];
                prop_assert_eq!(udp_checksum == [0, 0], !completed);
                prop_assert_eq!(&packet[..14], &frame[..14]);
                together.extend(part);
            }
            prop_assert_eq!(together, payload);
        }

        #[test]
        fn no_frame_makes_the_segmenter_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            segment_len in prop::option::of(0usize..40),
        ) {
            segmented(&bytes, segment_len, SegmentChecksum::Completed);
        }

        #[test]
        fn no_corrupted_train_makes_the_segmenter_panic(
            at in 12usize..60, value in any::<u8>(), len in 0usize..200, is_ipv4 in any::<bool>(),
        ) {
            let mut frame = if is_ipv4 {
                ipv4_frame(4791, &[7; 100])
            } else {
                ipv6_frame(4791, &[7; 100])
            };
            frame[at] = value;
            frame.truncate(len);
            segmented(&frame, Some(16), SegmentChecksum::Completed);
        }
    }

    #[test]
    fn a_complete_packet_is_lent_unchanged() {
        let mut frame = ipv4_frame(4791, &[1; 9]);
        frame.extend([0; 9]); // Ethernet padding
        let whole = RxFrame::packet(&frame);
        let mut segmenter = Segmenter::default();
        segmenter.segment(whole, SegmentChecksum::Zero, &mut |packet| assert_eq!(packet, frame));
    }

    #[test]
    fn a_partial_checksum_of_a_single_packet_is_completed() {
        let mut frame = ipv4_frame(4791, &[1; 9]);
        frame[40..42].copy_from_slice(&[0x12, 0x34]);
        let packets = segmented(&frame, None, SegmentChecksum::Completed);
        verified(&packets[0]);
        assert_ne!(packets[0][40..42], [0, 0]);
    }
}
