//! The helpers themselves, where a mistake would make every other property hold.

use std::fs::File;
use std::time::Duration;

use pcap_file::pcapng::{Block, PcapNgReader};

use crate::common::capture::Capture;
use crate::common::repeat::for_each_case;
use roce_simnet::fill_synthetic;

#[test]
fn synthetic_bytes_depend_on_their_address_alone() {
    let mut whole = [0; 100];
    fill_synthetic(3, 1000, &mut whole);
    for start in 0..40 {
        for len in 0..60 {
            let mut part = vec![0; len];
            fill_synthetic(3, 1000 + start as u64, &mut part);
            assert_eq!(part, whole[start..start + len]);
        }
    }
}

#[test]
fn a_failing_case_names_its_seed_and_the_command_that_repeats_it() {
    let failure = std::panic::catch_unwind(|| {
        for_each_case(100, 0u32..1000, |number| assert!(number < 900, "too big"));
    });
    let message = *failure.expect_err("one of 100 is above 900").downcast::<String>().unwrap();
    // Under `ROCE_PCAP` nothing is shrunk.
    if std::env::var_os("ROCE_PCAP").is_none() {
        assert!(message.contains("smallest input: 900"), "{message}");
    }
    assert!(message.contains("ROCE_SEED="), "{message}");
    assert!(message.contains("a_failing_case_names_its_seed"), "{message}");
}

#[test]
fn a_capture_can_be_read_back() {
    let path = std::env::temp_dir().join(format!("roce-capture-{}.pcapng", std::process::id()));
    let mut capture = Capture::create(path.clone(), 2);
    capture.record(1, 1_500, &[1, 2, 3]);
    drop(capture);
    let mut reader = PcapNgReader::new(File::open(&path).unwrap()).unwrap();
    let mut packets = vec![];
    while let Some(block) = reader.next_block() {
        if let Block::EnhancedPacket(packet) = block.unwrap() {
            packets.push((packet.interface_id, packet.timestamp, packet.data.to_vec()));
        }
    }
    std::fs::remove_file(&path).unwrap();
    assert_eq!(packets, [(1, Duration::from_nanos(1_500), vec![1, 2, 3])]);
}
