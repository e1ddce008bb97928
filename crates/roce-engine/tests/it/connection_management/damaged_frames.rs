//! Prefixes and flipped bits of whole frames to queue pair 1.

use std::net::{IpAddr, Ipv4Addr};

use super::forged::{
    ForgedPacket, PACKET_HEADERS, PEER, Victim, dreq, encoded, peer, rej, req_of_connection,
    sidr_req,
};

/// Bytes of Ethernet, IPv4 and UDP headers.
const ETHERNET: usize = 14;
const OUTER: usize = ETHERNET + 20 + 8;
/// Byte of the BTH that the ICRC leaves out: switches mark it.
const UNPROTECTED: usize = OUTER + 4;

/// The datagrams that are damaged: two that end the connection, and two requests; and the bytes of each
/// of which every bit decides whether it ends the connection.
fn datagrams(victim: &Victim) -> [(&'static str, [u8; 256]); 4] {
    [
        ("DREQ", encoded(dreq(victim.id))),
        ("REJ", encoded(rej(victim.id))),
        ("REQ", encoded(req_of_connection())),
        ("SIDR_REQ", encoded(sidr_req(peer(), PEER.0))),
    ]
}

/// Whether the datagram with this flipped byte ends the connection, if the engine passes it on.
fn ends(name: &str, byte: usize) -> bool {
    // Versions, class and method; the attribute.
    let is_kind = byte < 4 || (16..18).contains(&byte);
    match name {
        // Both communication ids; of the DREQ the queue pair, too.
        "DREQ" => !is_kind && !(24..35).contains(&byte),
        "REJ" => !is_kind && !(24..32).contains(&byte),
        // The communication id alone: the peer seems to have forgotten the connection.
        "REQ" => (24..28).contains(&byte),
        _ => false,
    }
}

/// Passes a frame to the victim, and returns what it is counted under: `cm_received`, or the reason for
/// which the engine does not pass it on.
fn counter_of(victim: &mut Victim, frame: Vec<u8>) -> &'static str {
    let before = victim.counters();
    victim.receive(frame);
    victim.host.resolve_wanted();
    victim.sent();
    let counted = victim.counted(&before);
    // What the agent counts beside is checked by its own tests, and all packets count.
    let is_reason =
        |name: &str| name == "cm_received" || !(name.starts_with("cm_") || name == "rcvd_pkts");
    match counted.iter().filter(|(name, _)| is_reason(name)).collect::<Vec<_>>()[..] {
        [(name, 1)] => name,
        ref other => panic!("counted as {other:?}, of {counted:?}"),
    }
}

/// Passes a frame to the victim, checks what it is counted under and whether it ends the connection, and
/// makes a new victim if it does.
fn check(victim: &mut Victim, frame: Vec<u8>, counter: &str, ends: bool, what: &str) {
    assert_eq!(counter_of(victim, frame), counter, "{what}");
    assert_eq!(!victim.is_connected(), ends, "{what}");
    if ends {
        *victim = Victim::new();
    }
}

/// The counter of a packet with a right ICRC in whose BTH or DETH this bit is flipped.
fn counter_of_header_bit(bit: usize) -> &'static str {
    match bit {
        // The opcode: only some bits make another one that exists.
        0 | 6 => "wrong_service",
        1..=7 => "drop_unknown_opcode",
        8..=11 => "drop_bth_version",
        12 | 13 => "management_length",
        // Solicited event and migration; full membership of the partition.
        14 | 15 | 23 => "cm_received",
        16..=31 => "bad_pkey",
        // Congestion marks and reserved bits.
        32..=39 => "cm_received",
        40..=63 => "unknown_qp",
        // Acknowledge request and PSN.
        64..=95 => "cm_received",
        96..=127 => "bad_qkey",
        // The sender's queue pair, which the kernel does not look at either.
        _ => "cm_received",
    }
}

#[test]
fn a_flipped_bit_with_a_right_icrc_is_counted_and_ends_only_a_connection_that_is_named() {
    let mut victim = Victim::new();
    for (name, datagram) in datagrams(&victim) {
        for bit in 0..8 * (PACKET_HEADERS + datagram.len()) {
            let mut packet = ForgedPacket::new(peer(), &datagram);
            packet.bytes[bit / 8] ^= 1 << (bit % 8);
            let what = format!("bit {bit} of {name}");
            let (counter, ends) = match bit / 8 {
                byte @ PACKET_HEADERS.. => ("cm_received", ends(name, byte - PACKET_HEADERS)),
                _ => {
                    let counter = counter_of_header_bit(bit);
                    // As without a flip: the DREQ and the REJ are right.
                    let is_right = matches!(name, "DREQ" | "REJ");
                    (counter, is_right && counter == "cm_received")
                }
            };
            check(&mut victim, packet.sealed(), counter, ends, &what);
        }
        for bit in 0..32 {
            let flipped = |address: IpAddr| match address {
                IpAddr::V4(it) => IpAddr::V4(Ipv4Addr::from_bits(it.to_bits() ^ 1 << bit)),
                IpAddr::V6(_) => unreachable!(),
            };
            let what = format!("bit {bit} of an address of {name}");
            let mut packet = ForgedPacket::new(peer(), &datagram);
            packet.source = flipped(packet.source);
            check(&mut victim, packet.sealed(), "cm_received", false, &what);
            let mut packet = ForgedPacket::new(peer(), &datagram);
            packet.destination = flipped(packet.destination);
            check(&mut victim, packet.sealed(), "drop_not_our_address", false, &what);
        }
    }
}

#[test]
fn a_frame_that_was_damaged_on_its_way_is_dropped_under_a_counter() {
    let mut victim = Victim::new();
    let datagram = encoded(dreq(victim.id));
    let whole = ForgedPacket::new(peer(), &datagram).sealed();
    let mut reasons = std::collections::BTreeMap::<_, usize>::new();
    for bit in 0..8 * whole.len() {
        let mut frame = whole.clone();
        frame[bit / 8] ^= 1 << (bit % 8);
        let counter = counter_of(&mut victim, frame);
        *reasons.entry(counter).or_default() += 1;
        // The interface checks MAC addresses.
        let is_unprotected = bit / 8 < 12 || bit / 8 == UNPROTECTED;
        assert_eq!(counter == "cm_received", is_unprotected, "bit {bit}: {counter}");
        assert_eq!(!victim.is_connected(), is_unprotected, "bit {bit}: {counter}");
        if is_unprotected {
            victim = Victim::new();
        }
    }
    println!("{reasons:?}");
    assert!(reasons["drop_icrc"] > 8 * 256, "{reasons:?}");
    for len in 0..whole.len() {
        let counter = counter_of(&mut victim, whole[..len].to_vec());
        assert!(counter.starts_with("drop_"), "{len} bytes: {counter}");
        assert!(victim.is_connected(), "{len} bytes");
    }
}

#[test]
fn every_prefix_of_a_datagram_with_a_right_icrc_is_counted_by_its_length() {
    let mut victim = Victim::new();
    for (name, datagram) in datagrams(&victim) {
        let longer = [&datagram[..], &[0; 300]].concat();
        for len in (0..longer.len()).filter(|len| *len != datagram.len()) {
            let frame = ForgedPacket::new(peer(), &longer[..len]).sealed();
            check(
                &mut victim,
                frame,
                "management_length",
                false,
                &format!("{len} bytes of {name}"),
            );
        }
    }
}
