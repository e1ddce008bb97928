//! Trains.

use etherparse::checksum::Sum16BitWords;
use proptest::prelude::*;

use super::samples::{any_headers, headers_of, ipv4, ipv6, sealed, segment};
use crate::*;

fn any_outer() -> impl Strategy<Value = OuterHeaders> {
    let addresses = prop_oneof![
        any::<[[u8; 4]; 2]>().prop_map(|[a, b]| [Gid::from_v4(a), Gid::from_v4(b)]),
        // Not in the range of mapped IPv4 addresses.
        any::<[[u8; 15]; 2]>().prop_map(|[a, b]| [Gid::from_v6(a), Gid::from_v6(b)]),
    ];
    let vlan = proptest::option::of((0u16..1 << 12, 0u8..8, any::<bool>()))
        .prop_map(|tag| tag.map(|(id, priority, drop)| VlanTag::new(id, priority, drop).unwrap()));
    (addresses, any::<[[u8; 6]; 2]>(), vlan, any::<u16>(), any::<[u8; 2]>(), 0u32..1 << 20)
        .prop_map(|([source, destination], [mac, next_hop], vlan, source_port, bytes, label)| {
            OuterHeaders {
                source_mac: MacAddr(mac),
                destination_mac: MacAddr(next_hop),
                vlan,
                source: source.ip(),
                destination: destination.ip(),
                source_port,
                traffic_class: bytes[0],
                hop_limit: bytes[1],
                flow_label: if source.is_ipv4() { 0 } else { label },
            }
        })
}

impl Gid {
    fn from_v4(octets: [u8; 4]) -> Self {
        core::net::Ipv4Addr::from(octets).into()
    }

    fn from_v6(octets: [u8; 15]) -> Self {
        let mut gid = Self([0xfd; 16]);
        gid.0[1..].copy_from_slice(&octets);
        gid
    }
}

/// `count` packets of `len` payload bytes each, the last of `last_len`.
fn train_of(count: usize, len: usize, last_len: usize) -> (Vec<Vec<u8>>, usize) {
    let mut segments = Vec::new();
    for index in 0..count {
        let mut headers = headers_of(opcode::RC_SEND_MIDDLE);
        headers.bth.psn = headers.bth.psn.advanced_by(index as u32);
        let payload_len = if index + 1 == count { last_len } else { len };
        segments.push(segment(&headers, &vec![index as u8; payload_len]));
    }
    let segment_len = segments[0].len();
    (segments, segment_len)
}

fn frame_of(outer: &OuterHeaders, segments: &[Vec<u8>]) -> Vec<u8> {
    let mut frame = vec![0; outer.len()];
    frame.extend(segments.concat());
    frame
}

proptest! {
    #[test]
    fn a_sealed_train_holds_the_packets_that_sealing_one_by_one_gives(
        outer in any_outer(), identification: u16, count in 1usize..20, len in 1usize..300,
        last_len in 0usize..300,
    ) {
        let (segments, segment_len) = train_of(count, len, last_len.min(len));
        let mut train = frame_of(&outer, &segments);
        seal(&outer, identification, &mut train, segment_len, UdpChecksum::Zero).unwrap();
        for (index, segment) in segments.iter().enumerate() {
            let mut single = frame_of(&outer, core::slice::from_ref(segment));
            let own = identification.wrapping_add(index as u16);
            seal(&outer, own, &mut single, segment.len(), UdpChecksum::Zero).unwrap();
            let in_train = &train[outer.len() + index * segment_len..][..segment.len()];
            prop_assert_eq!(&single[outer.len()..], in_train);
            let mut alone = segment.clone();
            Sealer::new(&outer).unwrap().seal_single(outer.source_port, own, &mut alone).unwrap();
            prop_assert_eq!(&alone[..], in_train);
        }

        let frame = Frame::parse(&train).unwrap();
        let mut walked = 0;
        for (index, packet) in frame.packets(Some(segment_len)).enumerate() {
            let packet = packet.unwrap();
            prop_assert_eq!(usize::from(packet.index()), index);
            let packet = packet.verify_icrc().unwrap();
            prop_assert_eq!(&packet.bth().bytes()[..], &segments[index][..12]);
            walked += 1;
        }
        prop_assert_eq!(walked, count);
    }

    #[test]
    fn every_sealed_packet_is_parsed_unchanged(
        outer in any_outer(), identification: u16, headers in any_headers(),
        payload in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        let carries = headers.bth.opcode.info().carries_payload();
        let payload = if carries { &payload[..] } else { &[] };
        let bytes = sealed(&outer, identification, &headers, payload);
        let frame = Frame::parse(&bytes).unwrap();
        let packets: Vec<_> = frame.packets(None).collect();
        prop_assert_eq!(packets.len(), 1);
        let packet = packets[0].unwrap().verify_icrc().unwrap();
        let pad = Pad::for_payload(payload.len()).bytes();
        prop_assert_eq!(packet.headers(), headers.with_pad(pad as u8));
        prop_assert_eq!(packet.payload(), payload);

        prop_assert_eq!(frame.source(), outer.source);
        prop_assert_eq!(frame.destination(), outer.destination);
        prop_assert_eq!(frame.source_mac(), outer.source_mac);
        prop_assert_eq!(frame.destination_mac(), outer.destination_mac);
        prop_assert_eq!(frame.vlans(), outer.vlan.as_slice());
        prop_assert_eq!(frame.source_port(), outer.source_port);
        prop_assert_eq!(frame.traffic_class(), outer.traffic_class);
        prop_assert_eq!(frame.hop_limit(), outer.hop_limit);
        prop_assert_eq!(frame.flow_label(), outer.flow_label);
        prop_assert_eq!(frame.payload_offset(), outer.len());
        let expected = outer.source.is_ipv4().then_some(identification);
        prop_assert_eq!(frame.identification(), expected);
    }

    #[test]
    fn headers_are_parsed_unchanged_and_leave_the_bytes_after_them(
        headers in any_headers(), behind: [u8; 8],
    ) {
        let mut bytes = [0; 64];
        let len = headers.emit(&mut bytes);
        prop_assert_eq!(len, headers.len());
        bytes[len..len + 8].copy_from_slice(&behind);
        prop_assert_eq!(Headers::parse(&bytes[..len + 8]), Ok((headers, &behind[..])));
    }

    /// Completes a partial checksum as a device does.
    #[test]
    fn a_partial_checksum_is_right_once_the_datagram_is_added(
        outer in any_outer(), payload in prop::collection::vec(any::<u8>(), 1..64),
    ) {
        let mut bytes = sealed(&outer, 1, &headers_of(opcode::RC_SEND_ONLY), &payload);
        let segment_len = bytes.len() - outer.len();
        seal(&outer, 1, &mut bytes, segment_len, UdpChecksum::PartialForOffload).unwrap();

        let offloaded = ParseOptions { udp_checksum_offloaded: true };
        prop_assert!(Frame::parse_with(&bytes, offloaded).is_ok());
        let udp = outer.udp_offset();
        let sum = Sum16BitWords::new().add_slice(&bytes[udp..]).to_ones_complement_with_no_zero();
        // One in 65536 is right or zero by chance.
        prop_assume!(bytes[udp + 6..udp + 8] != sum.to_ne_bytes());
        prop_assume!(bytes[udp + 6..udp + 8] != [0, 0]);
        let unfinished = Frame::parse(&bytes);
        prop_assert!(matches!(unfinished, Err(WireError::UdpChecksum { .. })), "{:?}", unfinished);

        bytes[udp + 6..udp + 8].copy_from_slice(&sum.to_ne_bytes());
        let frame = Frame::parse(&bytes).unwrap();
        prop_assert!(frame.packets(None).next().unwrap().unwrap().verify_icrc().is_ok());
    }
}

#[test]
fn a_train_gathered_from_a_sender_that_does_not_count_identifications_is_accepted() {
    let outer = ipv4();
    let (segments, segment_len) = train_of(4, 64, 20);
    let mut train = frame_of(&outer, &segments);
    seal(&outer, 7, &mut train, segment_len, UdpChecksum::Zero).unwrap();
    let headers = train[..outer.len()].to_vec();
    let mut gathered = headers;
    for segment in &segments {
        let mut single = frame_of(&outer, core::slice::from_ref(segment));
        seal(&outer, 7, &mut single, segment.len(), UdpChecksum::Zero).unwrap();
        gathered.extend(&single[outer.len()..]);
    }
    let frame = Frame::parse(&gathered).unwrap();
    for packet in frame.packets(Some(segment_len)) {
        assert!(packet.unwrap().verify_icrc().is_ok());
    }
}

#[test]
fn a_packet_with_a_third_identification_is_refused() {
    let outer = ipv4();
    let (segments, segment_len) = train_of(3, 64, 64);
    let mut train = frame_of(&outer, &segments);
    seal(&outer, 7, &mut train, segment_len, UdpChecksum::Zero).unwrap();
    let mut single = frame_of(&outer, &segments[2..]);
    seal(&outer, 8, &mut single, segment_len, UdpChecksum::Zero).unwrap();
    train[outer.len() + 2 * segment_len..].copy_from_slice(&single[outer.len()..]);
    let frame = Frame::parse(&train).unwrap();
    let verdicts: Vec<_> =
        frame.packets(Some(segment_len)).map(|p| p.unwrap().verify_icrc().is_ok()).collect();
    assert_eq!(verdicts, [true, true, false]);
}

#[test]
fn a_broken_packet_in_a_train_is_an_error_in_its_place_and_the_walk_goes_on() {
    let outer = ipv6();
    let (segments, segment_len) = train_of(3, 64, 64);
    let mut train = frame_of(&outer, &segments);
    seal(&outer, 7, &mut train, segment_len, UdpChecksum::Zero).unwrap();
    train[outer.len() + segment_len] = 0x15;
    let frame = Frame::parse(&train).unwrap();
    let walked: Vec<_> = frame.packets(Some(segment_len)).map(|p| p.map(|p| p.index())).collect();
    assert_eq!(walked, [Ok(0), Err(WireError::UnknownOpcode(Opcode(0x15))), Ok(2)]);
}

#[test]
fn a_length_error_in_a_train_says_where_in_the_frame() {
    let outer = ipv4();
    let (segments, segment_len) = train_of(2, 64, 64);
    let mut train = frame_of(&outer, &segments);
    train.truncate(outer.len() + segment_len + 16);
    seal(&outer, 7, &mut train, segment_len, UdpChecksum::Zero).unwrap();
    train[outer.len() + segment_len] = 0x06;
    let frame = Frame::parse(&train).unwrap();
    let error = frame.packets(Some(segment_len)).nth(1).unwrap().unwrap_err();
    let at = outer.len() + segment_len + BTH_LEN;
    let expected = LenError { layer: Layer::Reth, need: RETH_LEN, have: 0, at };
    assert_eq!(error, WireError::Short(expected));
}

#[test]
fn segments_too_small_for_packets_are_one_error_and_not_thousands() {
    let bytes = sealed(&ipv4(), 1, &headers_of(opcode::RC_SEND_ONLY), &[0; 1000]);
    let frame = Frame::parse(&bytes).unwrap();
    for segment_len in [0, 1, 15] {
        let walked: Vec<_> = frame.packets(Some(segment_len)).collect();
        assert_eq!(walked, [Err(WireError::SegmentLen { segment_len })]);
    }
}

#[test]
fn a_mistaken_caller_of_seal_is_told_what_is_wrong() {
    let outer = ipv4();
    let seal = |outer: &OuterHeaders, len: usize, segment_len: usize| {
        seal(outer, 1, &mut vec![0; len], segment_len, UdpChecksum::Zero)
    };
    assert_eq!(seal(&outer, 41, 16), Err(SealError::NoHeadroom { need: 42, have: 41 }));
    assert_eq!(seal(&outer, 42, 16), Err(SealError::NoPacket));
    assert_eq!(seal(&outer, 100, 15), Err(SealError::SegmentTooShort { len: 15 }));
    assert_eq!(seal(&outer, 42 + 20 + 12, 20), Err(SealError::SegmentTooShort { len: 12 }));
    let longest = 65535 - 28;
    assert_eq!(seal(&outer, 42 + longest, 1040), Ok(()));
    let too_long = Err(SealError::TrainTooLong { len: longest + 1 });
    assert_eq!(seal(&outer, 42 + longest + 1, 1040), too_long);
    let mixed = OuterHeaders { destination: ipv6().destination, ..outer };
    assert_eq!(seal(&mixed, 100, 20), Err(SealError::MixedFamilies));
}
