//! Hostile bytes: truncated, with flipped bits, with wrong lengths.

use std::collections::BTreeSet;

use etherparse::checksum::Sum16BitWords;
use proptest::prelude::*;

use super::samples::{self, Sample, every_kind, headers_of, ipv4, ipv6, sealed};
use crate::{fuzzing::parse_frame, *};

/// The contents of an accepted packet.
#[derive(Clone, Debug, PartialEq)]
struct Accepted {
    headers: Headers,
    payload: Vec<u8>,
    addresses: [core::net::IpAddr; 2],
    source_port: u16,
}

/// Returns the packet in `frame`, or the counter of its drop.
fn receive(frame: &[u8]) -> Result<Accepted, &'static str> {
    receive_with(frame, ParseOptions::default())
}

fn receive_with(frame: &[u8], options: ParseOptions) -> Result<Accepted, &'static str> {
    let frame = Frame::parse_with(frame, options).map_err(|error| error.counter())?;
    let packet = frame.packets(None).next().unwrap().map_err(|error| error.counter())?;
    let packet = packet.verify_icrc().map_err(|_| BadIcrc::COUNTER)?;
    Ok(Accepted {
        headers: packet.headers(),
        payload: packet.payload().to_vec(),
        addresses: [packet.source(), packet.destination()],
        source_port: frame.source_port(),
    })
}

#[test]
fn every_prefix_of_every_packet_is_refused_as_too_short() {
    for Sample { name, frame, .. } in every_kind() {
        assert!(receive(&frame).is_ok(), "{name}");
        for len in 0..frame.len() {
            let counter = receive(&frame[..len]).unwrap_err();
            assert!(counter.starts_with("drop_short_"), "{name}, {len} bytes: {counter}");
        }
    }
}

/// Outcome of a packet with one flipped bit.
#[derive(Debug, PartialEq)]
enum Fate {
    /// No check covers the bit: the packet is accepted unchanged.
    Unchanged,
    /// The bit is FECN or BECN: accepted, otherwise unchanged.
    CongestionMark,
    /// Dropped under one of these counters.
    Dropped(&'static [&'static str]),
}
use Fate::*;

/// Returns the outcome of flipping `mask` in byte `at` of a frame without UDP checksum.
///
/// The bits that the ICRC does not cover are exactly: the MAC addresses, the contents of
/// VLAN tags, TOS and TTL and header checksum (IPv4), traffic class and flow label and
/// hop limit (IPv6), the UDP checksum, and byte 4 of the BTH. Of these, the IPv4 header
/// checksum covers those in its header. A UDP checksum of zero means none; with a flipped bit there
/// is one, and it is wrong.
fn fate(sample: &Sample, at: usize, mask: u8) -> Fate {
    let udp = sample.bth_offset() - 8;
    if at < 12 {
        Unchanged
    } else if at < sample.ip_offset {
        // EtherType, and then alternately a tag's contents and the EtherType behind them.
        if (at - 12) % 4 < 2 { Dropped(&["drop_ether_type"]) } else { Unchanged }
    } else if at < udp && sample.outer.source.is_ipv4() {
        match (at - sample.ip_offset, mask) {
            (0, 0x10..) => Dropped(&["drop_ip_version"]),
            // From 5 words to 1, 4, 7 or 13, and 13 do not fit in every packet.
            (0, _) => Dropped(&["drop_ipv4_header_length", "drop_ipv4_options", "drop_short_ipv4"]),
            _ => Dropped(&["drop_ipv4_checksum"]),
        }
    } else if at < udp {
        match (at - sample.ip_offset, mask) {
            (0, 0x10..) => Dropped(&["drop_ip_version"]),
            (0..4, _) => Unchanged, // traffic class, flow label
            (4..6, _) => Dropped(&["drop_short_ipv6", "drop_short_udp", "drop_udp_length"]),
            (6, _) => Dropped(&["drop_not_udp"]),
            (7, _) => Unchanged,               // hop limit
            _ => Dropped(&[BadIcrc::COUNTER]), // addresses
        }
    } else if at < sample.bth_offset() {
        match at - udp {
            0..2 => Dropped(&[BadIcrc::COUNTER]), // source port
            2..4 => Dropped(&["drop_udp_port"]),
            4..6 => Dropped(&["drop_udp_length"]),
            _ => Dropped(&["drop_udp_checksum"]),
        }
    } else {
        match (at - sample.bth_offset(), mask) {
            (0, _) => Dropped(&[
                "drop_unknown_opcode",
                "drop_short_extension",
                "drop_unexpected_payload",
                "drop_pad",
                BadIcrc::COUNTER,
            ]),
            (1, 0..0x10) => Dropped(&["drop_bth_version"]),
            (1, 0x10..0x40) => Dropped(&["drop_pad", BadIcrc::COUNTER]),
            (4, 0x40..) => CongestionMark,
            (4, _) => Unchanged, // reserved
            _ => Dropped(&[BadIcrc::COUNTER]),
        }
    }
}

//= test icrc-bth
//= test icrc-ipv6
//= test icrc-dropped
//= test wire-udp-port
#[test]
fn every_flipped_bit_is_caught_by_its_owner_or_changes_nothing() {
    let mut counters = BTreeSet::new();
    for sample in every_kind() {
        let sent = receive(&sample.frame).unwrap();
        let mut frame = sample.frame.clone();
        for at in 0..frame.len() {
            for mask in (0..8).map(|bit| 1 << bit) {
                frame[at] ^= mask;
                let context = || format!("{}, byte {at}, bit {mask:#04x}", sample.name);
                match (fate(&sample, at, mask), receive(&frame)) {
                    (Unchanged, received) => {
                        assert_eq!(received.as_ref(), Ok(&sent), "{}", context())
                    }
                    (CongestionMark, received) => {
                        let mut received = received.unwrap();
                        let marked = [received.headers.bth.fecn, received.headers.bth.becn];
                        assert_ne!(marked, [false, false], "{}", context());
                        received.headers.bth.fecn = false;
                        received.headers.bth.becn = false;
                        assert_eq!(received, sent, "{}", context());
                    }
                    (Dropped(owners), received) => {
                        let counter = received.expect_err(&context());
                        assert!(owners.contains(&counter), "{}: {counter}", context());
                        counters.insert(counter);
                    }
                }
                frame[at] ^= mask;
            }
        }
    }
    // Every outcome occurs.
    let expected = [
        "drop_bth_version",
        "drop_ether_type",
        "drop_icrc",
        "drop_ip_version",
        "drop_ipv4_checksum",
        "drop_ipv4_header_length",
        "drop_ipv4_options",
        "drop_not_udp",
        "drop_pad",
        "drop_short_extension",
        "drop_short_ipv4",
        "drop_short_ipv6",
        "drop_short_udp",
        "drop_udp_checksum",
        "drop_udp_length",
        "drop_udp_port",
        "drop_unexpected_payload",
        "drop_unknown_opcode",
    ];
    assert_eq!(counters, BTreeSet::from(expected));
}

/// A datagram with a right UDP checksum, which covers the bits that the ICRC does not.
//= test icrc-udp-checksum
//= test wire-udp-checksum
#[test]
fn with_a_udp_checksum_a_flip_behind_the_ip_header_is_dropped() {
    for outer in [ipv4(), ipv6()] {
        let mut frame = sealed(&outer, 1, &headers_of(opcode::RC_SEND_ONLY), b"hello");
        let segment_len = frame.len() - outer.len();
        seal(&outer, 1, &mut frame, segment_len, UdpChecksum::PartialForOffload).unwrap();
        let udp = outer.udp_offset();
        let sum = Sum16BitWords::new().add_slice(&frame[udp..]).to_ones_complement_with_no_zero();
        frame[udp + 6..udp + 8].copy_from_slice(&sum.to_ne_bytes());
        assert!(receive(&frame).is_ok());
        for at in udp..frame.len() {
            for bit in 0..8 {
                frame[at] ^= 1 << bit;
                let counter = receive(&frame).unwrap_err();
                let expected = match at - udp {
                    2..4 => "drop_udp_port",
                    4..6 => "drop_udp_length",
                    _ => "drop_udp_checksum",
                };
                assert_eq!(counter, expected, "byte {at}");
                frame[at] ^= 1 << bit;
            }
        }
    }
}

#[test]
fn an_offloaded_udp_checksum_may_hold_anything() {
    let offloaded = ParseOptions { udp_checksum_offloaded: true };
    for outer in [ipv4(), ipv6()] {
        let mut frame = sealed(&outer, 1, &headers_of(opcode::RC_SEND_ONLY), b"hello");
        let sent = receive(&frame);
        frame[outer.udp_offset() + 6..][..2].fill(0xa5);
        assert_eq!(receive_with(&frame, offloaded), sent);
        assert_eq!(receive(&frame), Err("drop_udp_checksum"));
    }
}

/// Seals `segment` unchanged, so that only its own headers can be wrong.
fn sealed_as_is(mut segment: Vec<u8>) -> Vec<u8> {
    let outer = ipv4();
    let mut frame = vec![0; outer.len()];
    frame.append(&mut segment);
    let segment_len = frame.len() - outer.len();
    seal(&outer, 1, &mut frame, segment_len, UdpChecksum::Zero).unwrap();
    frame
}

//= test wire-pad
#[test]
fn lengths_that_disagree_with_the_opcode_are_refused() {
    for opcode in KnownOpcode::all() {
        let carries = opcode.info().carries_payload();
        let packet = samples::segment(&headers_of(opcode), &[]);
        let with_payload = |bytes: usize| {
            let mut longer = packet.clone();
            longer.splice(packet.len() - 4..packet.len() - 4, vec![0; bytes]);
            receive(&sealed_as_is(longer))
        };
        assert!(with_payload(0).is_ok());
        if carries {
            assert!(with_payload(4).is_ok());
            assert_eq!(with_payload(3), Err("drop_unaligned"), "{opcode:?}");
        } else {
            assert_eq!(with_payload(4), Err("drop_unexpected_payload"), "{opcode:?}");
            assert_eq!(with_payload(1), Err("drop_unexpected_payload"), "{opcode:?}");
        }
        let mut padded = packet.clone();
        padded[1] |= 0x10;
        assert_eq!(receive(&sealed_as_is(padded)), Err("drop_pad"), "{opcode:?}");
        for missing in 1..=packet.len() - 16 {
            let mut shorter = packet.clone();
            shorter.truncate(packet.len() - missing);
            let counter = receive(&sealed_as_is(shorter)).unwrap_err();
            assert_eq!(counter, "drop_short_extension", "{opcode:?}");
        }
    }
}

//= test wire-bth-version
//= test wire-opcode-unknown
#[test]
fn unknown_opcodes_and_versions_are_refused_by_name() {
    let packet = samples::segment(&headers_of(opcode::RC_SEND_ONLY), b"hello");
    for code in 0..=u8::MAX {
        let mut other = packet.clone();
        other[0] = code;
        let known = KnownOpcode::new(Opcode(code)).is_some();
        let received = receive(&sealed_as_is(other));
        assert_eq!(received == Err("drop_unknown_opcode"), !known, "{code:#04x}");
    }
    for version in 1..16 {
        let mut other = packet.clone();
        other[1] |= version;
        assert_eq!(receive(&sealed_as_is(other)), Err("drop_bth_version"));
    }
}

/// Returns `frame` with a right IPv4 header checksum.
fn with_checksum(mut frame: Vec<u8>) -> Vec<u8> {
    let words = usize::from(frame[14] & 0xf);
    frame[24..26].fill(0);
    let sum = Sum16BitWords::new().add_slice(&frame[14..14 + 4 * words]).ones_complement();
    frame[24..26].copy_from_slice(&sum.to_ne_bytes());
    frame
}

//= test wire-fragment-dropped
//= test wire-ipv4-options-dropped
#[test]
fn ipv4_options_and_fragments_are_refused_by_name() {
    let frame = sealed(&ipv4(), 1, &headers_of(opcode::RC_SEND_ONLY), b"hello");

    let mut options = frame.clone();
    options[14] = 0x46;
    options[17] += 4;
    options.splice(34..34, [1, 1, 1, 1]);
    assert_eq!(receive(&with_checksum(options)), Err("drop_ipv4_options"));

    for (flags, offset) in [(0x20, 0), (0x00, 1), (0x1f, 0xff)] {
        let mut fragment = frame.clone();
        fragment[20] = flags;
        fragment[21] = offset;
        assert_eq!(receive(&with_checksum(fragment)), Err("drop_ipv4_fragment"));
    }
}

#[test]
fn another_protocol_than_udp_is_refused_by_name() {
    let mut frame = sealed(&ipv4(), 1, &headers_of(opcode::RC_SEND_ONLY), b"hello");
    frame[23] = 6;
    assert_eq!(receive(&with_checksum(frame)), Err("drop_not_udp"));
    let mut frame = sealed(&ipv6(), 1, &headers_of(opcode::RC_SEND_ONLY), b"hello");
    frame[20] = 44; // a fragment header
    assert_eq!(receive(&frame), Err("drop_not_udp"));
}

#[test]
fn lengths_of_ip_and_udp_that_lie_are_refused() {
    let frame = sealed(&ipv4(), 1, &headers_of(opcode::RC_SEND_ONLY), b"hello");
    let with_total_len = |len: u16| {
        let mut frame = frame.clone();
        frame[16..18].copy_from_slice(&len.to_be_bytes());
        receive(&with_checksum(frame))
    };
    let right = frame.len() as u16 - 14;
    assert!(with_total_len(right).is_ok());
    assert_eq!(with_total_len(right + 1), Err("drop_short_ipv4"));
    assert_eq!(with_total_len(19), Err("drop_short_ipv4"));
    assert_eq!(with_total_len(27), Err("drop_short_udp"));
    assert_eq!(with_total_len(right - 4), Err("drop_udp_length"));
}

#[test]
fn a_datagram_without_a_payload_is_one_short_packet() {
    let mut frame = sealed(&ipv4(), 1, &headers_of(opcode::RC_SEND_ONLY), b"");
    frame.truncate(42);
    frame[16..18].copy_from_slice(&28u16.to_be_bytes());
    frame[38..40].copy_from_slice(&8u16.to_be_bytes());
    let frame = with_checksum(frame);
    let frame = Frame::parse(&frame).unwrap();
    let short = LenError { layer: Layer::Icrc, need: 4, have: 0, at: 42 };
    let walked: Vec<_> = frame.packets(None).collect();
    assert_eq!(walked, [Err(WireError::Short(short))]);
}

#[test]
fn ethernet_padding_is_ignored() {
    for Sample { name, mut frame, .. } in every_kind() {
        let sent = receive(&frame);
        frame.extend([0xee; 18]);
        assert_eq!(receive(&frame), sent, "{name}");
    }
}

#[test]
fn a_third_vlan_tag_is_refused() {
    let mut frame = samples::sample(opcode::RC_SEND_ONLY, ipv4(), 2).frame;
    frame.splice(12..12, [0x81, 0x00, 0, 1]);
    assert_eq!(receive(&frame), Err("drop_vlan_tags"));
}

#[test]
fn every_counter_is_in_the_list() {
    let listed = BTreeSet::from(COUNTERS);
    assert_eq!(listed.len(), COUNTERS.len(), "a name stands there twice");
    for sample in every_kind() {
        for at in 0..sample.frame.len() {
            let mut frame = sample.frame.clone();
            frame[at] ^= 0x55;
            if let Err(counter) = receive(&frame) {
                assert!(listed.contains(counter), "{counter}");
            }
        }
    }
}

proptest! {
    #[test]
    fn no_bytes_make_the_parser_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..256),
    ) {
        parse_frame(&bytes);
    }

    #[test]
    fn no_mangled_packet_makes_the_parser_panic(
        which: prop::sample::Index, changes in prop::collection::vec(any::<(prop::sample::Index, u8)>(), 1..8),
    ) {
        let mut frame = which.get(&every_kind()).frame.clone();
        for (at, byte) in changes {
            let at = at.index(frame.len());
            frame[at] = byte;
        }
        parse_frame(&frame);
    }
}

/// The names of all counters.
const COUNTERS: [&str; 28] = [
    "drop_short_ethernet",
    "drop_short_vlan",
    "drop_short_ipv4",
    "drop_short_ipv6",
    "drop_short_grh",
    "drop_short_udp",
    "drop_short_bth",
    "drop_short_icrc",
    "drop_short_extension",
    "drop_ether_type",
    "drop_vlan_tags",
    "drop_ip_version",
    "drop_ipv4_header_length",
    "drop_ipv4_options",
    "drop_ipv4_fragment",
    "drop_ipv4_checksum",
    "drop_not_udp",
    "drop_udp_port",
    "drop_udp_length",
    "drop_udp_checksum",
    "drop_grh_next_header",
    "drop_bth_version",
    "drop_unknown_opcode",
    "drop_pad",
    "drop_unaligned",
    "drop_unexpected_payload",
    "drop_segment_len",
    BadIcrc::COUNTER,
];
