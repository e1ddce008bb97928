//! A ring of three ranks, recorded: one of ours, two on rxe (`testdata/README.md`).

use std::collections::BTreeMap;
use std::net::IpAddr;

use pcap_file::pcapng::{Block, PcapNgReader};
use roce_wire::Frame;

const CAPTURE: &[u8] = include_bytes!("../../../testdata/mixed_ring.pcapng");

/// Every frame of the capture.
fn frames() -> Vec<Vec<u8>> {
    let mut reader = PcapNgReader::new(CAPTURE).unwrap();
    let mut frames = Vec::new();
    while let Some(block) = reader.next_block() {
        if let Block::EnhancedPacket(packet) = block.unwrap() {
            assert_eq!(packet.data.len(), packet.original_len as usize, "no frame is cut");
            frames.push(packet.data.into_owned());
        }
    }
    frames
}

#[test]
fn every_packet_of_a_mixed_ring_is_understood_and_has_its_icrc() {
    let (mut packets, mut kinds) = (BTreeMap::new(), BTreeMap::new());
    for (number, bytes) in frames().iter().enumerate() {
        let frame = Frame::parse(bytes).unwrap_or_else(|error| panic!("{number}: {error}"));
        for packet in frame.packets(None) {
            let packet = packet.unwrap_or_else(|error| panic!("{number}: {error}"));
            let packet = packet.verify_icrc().unwrap_or_else(|error| panic!("{number}: {error}"));
            *packets.entry((frame.source(), frame.destination())).or_insert(0) += 1;
            if let Some(immediate) = packet.headers().immediate {
                // What the message is stands in the two highest bits.
                *kinds.entry(immediate.0[0] >> 6).or_insert(0) += 1;
            }
        }
    }
    let rank =
        |rank: usize| ["10.9.1.1", "10.9.1.11", "10.9.1.12"][rank].parse::<IpAddr>().unwrap();
    for (from, to) in [(0, 1), (1, 2), (2, 0)] {
        for link in [(rank(from), rank(to)), (rank(to), rank(from))] {
            assert!(packets.get(&link).is_some_and(|count| *count > 20), "{link:?}: {packets:?}");
        }
    }
    assert_eq!(packets.len(), 6, "there are no other hosts");
    // DATA to slots and to windows, credits, windows.
    assert_eq!(kinds.keys().copied().collect::<Vec<_>>(), [0, 1, 2, 3], "{kinds:?}");
}
