//! Congestion marks on real interfaces: CNPs, their class, and what the sender counts.

use std::fs::File;
use std::path::Path;

use pcap_file::pcapng::{Block, PcapNgReader};
use roce_test_macros::tier1;
use roce_tests::fixtures::{Cable, TestDevice};
use roce_tests::writer::Writer;
use roce_verbs::{CompletionStatus, ConnectOptions, DeviceConfig, FaultConfig, FaultRates};
use roce_wire::{Ecn, Frame, Operation, ParseOptions};

/// Operations of all packets in a capture, each with its traffic class.
fn operations(capture: &Path) -> Vec<(Operation, u8)> {
    let mut reader = PcapNgReader::new(File::open(capture).unwrap()).unwrap();
    let mut seen = Vec::new();
    while let Some(block) = reader.next_block() {
        let Block::EnhancedPacket(packet) = block.unwrap() else { continue };
        let options = ParseOptions { udp_checksum_offloaded: true };
        let Ok(frame) = Frame::parse_with(&packet.data, options) else { continue };
        for packet in frame.packets(None).flatten() {
            let operation = packet.headers().bth.opcode.info().operation;
            seen.push((operation, frame.traffic_class()));
        }
    }
    seen
}

#[tier1]
fn marked_packets_draw_cnps_in_a_class_of_their_own_and_the_sender_handles_each() {
    let cable = Cable::with_mtu(1500);
    let capture = std::env::temp_dir().join(format!("roce-cnps-{}.pcapng", std::process::id()));
    let left = TestDevice::on(
        &cable.left,
        DeviceConfig { capture: Some(capture.clone()), ..DeviceConfig::default() },
    );
    // A switch in front of the receiver that marks everything.
    let marks = FaultRates { mark: 1.0, ..FaultRates::default() };
    let faults = FaultConfig { inbound: marks, ..FaultConfig::default() };
    let right = TestDevice::on(
        &cable.right,
        DeviceConfig { faults: Some(faults), ..DeviceConfig::default() },
    );
    // DSCP 26 and ECT(0), as RDMA traffic often has it.
    let options = ConnectOptions { traffic_class: 106, ..ConnectOptions::default() };
    let writer = Writer::connect((&left, &options), (&right, &options), 65_536);
    for _ in 0..20 {
        assert_eq!(writer.write(65_536).0, CompletionStatus::Success);
    }
    let sent = right.device.counter("np_cnp_sent").unwrap();
    assert!(sent > 0);
    assert!(right.device.counter("np_ecn_marked_roce_packets").unwrap() >= 20 * 64);
    assert_eq!(left.device.counter("rp_cnp_handled").unwrap(), sent);
    left.device.flush_capture().unwrap();
    let seen = operations(&capture);
    std::fs::remove_file(&capture).unwrap();
    let classes =
        |wanted| seen.iter().filter(move |(it, _)| *it == wanted).map(|(_, class)| *class);
    assert_eq!(classes(Operation::Cnp).count() as u64, sent);
    assert!(classes(Operation::Cnp).all(|class| class == 48 << 2), "DSCP 48, Not-ECT");
    assert!(classes(Operation::Write).all(|class| class == 106));
    assert!(classes(Operation::Write).all(|class| Ecn::from_traffic_class(class) == Ecn::Capable0));
}

#[tier1]
fn a_device_changes_its_congestion_control_while_connections_exist() {
    let cable = Cable::with_mtu(1500);
    let left = TestDevice::on(&cable.left, DeviceConfig::default());
    let marks = FaultRates { mark: 1.0, ..FaultRates::default() };
    let faults = FaultConfig { inbound: marks, ..FaultConfig::default() };
    let right = TestDevice::on(
        &cable.right,
        DeviceConfig { faults: Some(faults), ..DeviceConfig::default() },
    );
    let options = ConnectOptions { traffic_class: 2, ..ConnectOptions::default() };
    let writer = Writer::connect((&left, &options), (&right, &options), 65_536);
    let ignored = || left.device.counter("rp_cnp_ignored").unwrap();
    for (control, ignores) in [("loss", true), ("dcqcn,rp_min_rate=100", false)] {
        let congestion = control.parse().unwrap();
        left.device.set_congestion(congestion).unwrap();
        let before = ignored();
        assert_eq!(writer.write(65_536).0, CompletionStatus::Success);
        assert_eq!(ignored() > before, ignores, "{control}");
        let line_rate = left.device.congestion().unwrap().line_rate;
        assert_eq!(line_rate, 10_000_000_000, "the speed of a veth");
    }
    assert!(left.device.counter("rp_cnp_handled").unwrap() > 0);
}
