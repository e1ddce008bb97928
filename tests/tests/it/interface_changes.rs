//! An interface that changes beneath connected queue pairs.

use roce_test_macros::tier1;
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use pcap_file::pcapng::{Block, PcapNgReader};
use roce_tests::fixtures::{Cable, TestDevice};
use roce_tests::ip::{hurry_neighbours, ip, wait_until};
use roce_tests::writer::{Writer, patient, patient_from};
use roce_verbs::{
    AsyncEvent, CompletionStatus, ConnectOptions, DeviceConfig, Gid, MacAddr, PathMtu, PortState,
};
use roce_wire::Frame;

/// What the retries of [`patient`] last for.
const PATIENT_BOUND: Duration = Duration::from_millis(8_600);
const NEW_MAC: MacAddr = MacAddr([0x02, 0, 0, 0, 0x12, 0x34]);

fn set_new_mac(host: &roce_netns::Host) {
    ip(host, "link set dev eth0 address 02:00:00:00:12:34");
}

/// All events that the device has for the application.
fn events(end: &TestDevice) -> Vec<AsyncEvent> {
    std::iter::from_fn(|| end.device.poll_event()).collect()
}

#[tier1]
fn below_the_path_mtu_requests_that_fit_go_on_and_others_end_within_their_bound() {
    // 67 ms · (1 + 3 retries), and as much again for a machine that is busy.
    let (options, bound) = (
        ConnectOptions { timeout: 14, retry_count: 3, ..ConnectOptions::default() },
        Duration::from_secs(2),
    );
    let cable = Cable::with_mtu(4200);
    let left = TestDevice::on(&cable.left, DeviceConfig::default());
    let right = TestDevice::on(&cable.right, DeviceConfig::default());
    let writer = Writer::connect((&left, &options), (&right, &options), 65536);
    assert_eq!(writer.write(65536).0, CompletionStatus::Success);
    cable.left.set_mtu("eth0", 1500).unwrap();
    let active = || left.device.port().unwrap().active_mtu;
    wait_until("the port has the new MTU", || active() == Some(PathMtu::B1024));
    assert_eq!(writer.write(64).0, CompletionStatus::Success);
    let (status, took) = writer.write(65536);
    println!("a WRITE that no longer fits: bound {bound:?}, observed {took:?}");
    assert_eq!(status, CompletionStatus::RetryExceeded);
    assert!(took < bound && left.device.counter("socket_sent_too_long").unwrap() > 0);
}

#[tier1]
fn a_request_goes_on_when_the_mtu_is_raised_again() {
    let cable = Cable::with_mtu(4200);
    let left = TestDevice::on(&cable.left, DeviceConfig::default());
    let right = TestDevice::on(&cable.right, DeviceConfig::default());
    let writer = Writer::connect((&left, &patient()), (&right, &patient()), 65536);
    let refused = || left.device.counter("socket_sent_too_long").unwrap();
    // In some rounds the device has seen the lowered MTU when the thread that follows the interface first looks,
    // and that finds what it knows.
    for round in 0..40 {
        let before = refused();
        cable.left.set_mtu("eth0", 1500).unwrap();
        writer.post(65536);
        wait_until("a packet is too long", || refused() > before);
        cable.left.set_mtu("eth0", 4200).unwrap();
        let began = Instant::now();
        let status = left.completion().status;
        let took = began.elapsed();
        println!("a WRITE after the MTU was raised: bound {PATIENT_BOUND:?}, observed {took:?}");
        assert_eq!(status, CompletionStatus::Success, "round {round}");
    }
}

#[tier1]
fn a_mac_address_that_changes_at_the_peer_fails_no_request() {
    let cable = Cable::with_mtu(1500);
    [&cable.left, &cable.right].into_iter().for_each(hurry_neighbours);
    let left = TestDevice::on(&cable.left, DeviceConfig::default());
    let right = TestDevice::on(&cable.right, DeviceConfig::default());
    let writer = Writer::connect((&left, &patient()), (&right, &patient()), 64);
    assert_eq!(writer.write(64).0, CompletionStatus::Success);
    set_new_mac(&cable.right);
    let began = Instant::now();
    let longest = writer.write_while(|| began.elapsed() < Duration::from_millis(300));
    println!("WRITEs to a changed MAC address: bound {PATIENT_BOUND:?}, longest {longest:?}");
    assert!(longest < PATIENT_BOUND);
    // Row 0 of the peer's table follows from its MAC address.
    let first = || right.device.gid_table().unwrap()[0].gid;
    wait_until("the table has the new row", || first() == Gid::link_local_from(NEW_MAC));
    assert!(events(&right).contains(&AsyncEvent::GidChange));
}

/// The source MAC address of the last RoCE frame from `source` in a capture.
fn last_source_mac(capture: &Path, source: IpAddr) -> Option<[u8; 6]> {
    let bytes = std::fs::read(capture).unwrap();
    let mut reader = PcapNgReader::new(bytes.as_slice()).unwrap();
    let mut last = None;
    while let Some(block) = reader.next_block() {
        if let Block::EnhancedPacket(packet) = block.unwrap()
            && Frame::parse(&packet.data).is_ok_and(|frame| frame.source() == source)
        {
            last = packet.data[6..12].try_into().ok();
        }
    }
    last
}

#[tier1]
fn a_mac_address_that_changes_on_the_own_side_fails_no_request_and_is_sent() {
    let cable = Cable::with_mtu(1500);
    [&cable.left, &cable.right].into_iter().for_each(hurry_neighbours);
    let capture = std::env::temp_dir().join(format!("roce-own-mac-{}.pcapng", std::process::id()));
    let config = DeviceConfig { capture: Some(capture.clone()), ..DeviceConfig::default() };
    let left = TestDevice::on(&cable.left, config);
    let right = TestDevice::on(&cable.right, DeviceConfig::default());
    let writer = Writer::connect((&left, &patient()), (&right, &patient()), 64);
    assert_eq!(writer.write(64).0, CompletionStatus::Success);
    set_new_mac(&cable.left);
    let began = Instant::now();
    let longest = writer.write_while(|| began.elapsed() < Duration::from_millis(300));
    println!("WRITEs from a changed MAC address: bound {PATIENT_BOUND:?}, longest {longest:?}");
    assert!(longest < PATIENT_BOUND);
    left.device.flush_capture().unwrap();
    let last = last_source_mac(&capture, IpAddr::from([10, 1, 0, 1]));
    std::fs::remove_file(&capture).unwrap();
    assert_eq!(last.map(MacAddr), Some(NEW_MAC));
}

#[tier1]
fn a_request_outlasts_an_address_that_is_removed_and_added_again() {
    let cable = Cable::with_mtu(1500);
    let left = TestDevice::on(&cable.left, DeviceConfig::default());
    let right = TestDevice::on(&cable.right, DeviceConfig::default());
    let from_left = patient_from(&left.device, "10.1.0.1");
    let from_right = patient_from(&right.device, "10.1.0.2");
    let writer = Writer::connect((&left, &from_left), (&right, &from_right), 64);
    // First the own address, then the peer's. What is dropped then says that nothing came through.
    let sides = [
        (&cable.left, &left, "10.1.0.1/24", "drop_no_route"),
        (&cable.right, &right, "10.1.0.2/24", "drop_not_our_address"),
    ];
    for (host, end, address, counter) in sides {
        events(end);
        assert_eq!(writer.write(64).0, CompletionStatus::Success);
        let is_usable = || {
            let ip: IpAddr = address.split('/').next().unwrap().parse().unwrap();
            end.device.gid_table().unwrap().iter().any(|row| row.usable && row.gid.ip() == ip)
        };
        ip(host, &format!("address delete {address} dev eth0"));
        wait_until("the row is gone", || !is_usable());
        writer.post(64);
        if counter != "drop_not_our_address" || end.sees_packets_to_others() {
            wait_until("a packet is dropped", || end.device.counter(counter).unwrap() > 0);
        } else {
            let before = left.device.counter("resent_pkts").unwrap();
            let resent = || left.device.counter("resent_pkts").unwrap() - before;
            wait_until("a packet is repeated that the kernel has dropped", || resent() > 1);
        }
        assert!(left.cq.poll_one().is_none());
        ip(host, &format!("address add {address} dev eth0"));
        let began = Instant::now();
        let status = left.completion().status;
        let took = began.elapsed();
        println!("a WRITE after {address} is back: bound {PATIENT_BOUND:?}, observed {took:?}");
        assert_eq!(status, CompletionStatus::Success);
        let seen = events(end);
        assert!(seen.iter().filter(|event| **event == AsyncEvent::GidChange).count() >= 2);
    }
}

#[tier1]
fn an_interface_that_is_deleted_ends_requests_within_their_bound_and_is_told() {
    let (options, bound) = (
        ConnectOptions { timeout: 14, retry_count: 3, ..ConnectOptions::default() },
        Duration::from_secs(2),
    );
    let cable = Cable::with_mtu(1500);
    let left = TestDevice::on(&cable.left, DeviceConfig::default());
    let right = TestDevice::on(&cable.right, DeviceConfig::default());
    let writer = Writer::connect((&left, &options), (&right, &options), 64);
    assert_eq!(writer.write(64).0, CompletionStatus::Success);
    events(&left);
    ip(&cable.left, "link delete eth0");
    let (status, took) = writer.write(64);
    println!("a WRITE over a deleted interface: bound {bound:?}, observed {took:?}");
    assert_eq!(status, CompletionStatus::RetryExceeded);
    assert!(took < bound);
    let mut seen = Vec::new();
    wait_until("the device is reported as gone", || {
        seen.extend(events(&left));
        seen.contains(&AsyncEvent::DeviceFatal)
    });
    assert!(seen.contains(&AsyncEvent::PortError), "{seen:?}");
    assert_eq!(left.device.port().unwrap().state, PortState::Down);
}
