//! Pause frames of the link's other end.

use std::thread;
use std::time::{Duration, Instant};

use roce_io::{AfPacket, AfPacketConfig, FrameDevice, TxFrame};
use roce_test_macros::tier1;
use roce_tests::fixtures::{COMPLETION_TIMEOUT, Cable, TestDevice};
use roce_tests::writer::Writer;
use roce_verbs::{CompletionStatus, ConnectOptions, DeviceConfig, environment};
use roce_wire::{MacAddr, PfcFrame};

const OTHER_END: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);

/// Sends a frame by `eth0` of the host that a switch would be.
struct Port(AfPacket);

impl Port {
    fn of(cable: &Cable) -> Self {
        let open = || AfPacket::open(&AfPacketConfig::new("eth0")).expect("a packet socket");
        Self(cable.right.run(open))
    }

    fn send(&mut self, frame: &[u8]) {
        let mut once = Some(frame);
        let sent = self.0.transmit(&mut |slot| {
            let frame = once.take()?;
            slot[..frame.len()].copy_from_slice(frame);
            Some(TxFrame::single(frame.len()))
        });
        assert_eq!(sent.expect("the interface is up"), 1);
    }

    fn pause(&mut self, class: u8, quanta: u16) {
        self.send(&PfcFrame::new(OTHER_END).with(class, quanta).to_bytes());
    }
}

fn class(number: u8) -> ConnectOptions {
    // The retries last for longer than a pause of these tests.
    ConnectOptions { traffic_class: number << 5, timeout: 20, ..ConnectOptions::default() }
}

/// Number of shards, each of which receives and counts every pause frame.
fn shards() -> u64 {
    environment::shards().unwrap() as u64
}

/// Waits until so many pause frames have arrived at all shards.
fn wait_for_pauses(end: &TestDevice, count: u64) {
    let deadline = Instant::now() + COMPLETION_TIMEOUT;
    let counted = || end.device.counter("rcvd_pause_frames").unwrap();
    while counted() < count * shards() {
        assert!(Instant::now() < deadline, "{} pause frames", counted());
        thread::sleep(Duration::from_millis(1));
    }
}

/// Returns false where pauses of the link do not reach the device, after a check that its WRITEs go on then.
fn is_paused_by(port: &mut Port, left: &TestDevice, right: &TestDevice) -> bool {
    if left.sees_pauses() {
        return true;
    }
    let writer = Writer::connect((left, &class(3)), (right, &class(3)), 64);
    port.pause(3, u16::MAX);
    assert_eq!(writer.write(64).0, CompletionStatus::Success);
    assert_eq!(left.device.counter("rcvd_pause_frames").unwrap(), 0);
    println!("{} sees no pauses of the link", left.device.backend());
    false
}

/// Two devices, and the port of the link's other end. One quantum takes `micros`.
fn ends(cable: &Cable, micros: u64) -> (TestDevice, TestDevice, Port) {
    let config = DeviceConfig {
        link_rate: Some(512 * 1_000_000 / micros),
        spin: Duration::ZERO,
        ..DeviceConfig::default()
    };
    let left = TestDevice::on(&cable.left, config.clone());
    (left, TestDevice::on(&cable.right, config), Port::of(cable))
}

#[tier1]
fn a_pause_stops_its_class_and_no_other_until_it_is_resumed() {
    let cable = Cable::with_mtu(1500);
    // The longest pause takes more than a minute.
    let (left, right, mut port) = ends(&cable, 1000);
    if !is_paused_by(&mut port, &left, &right) {
        return;
    }
    let [three, zero] =
        [3, 0].map(|number| Writer::connect((&left, &class(number)), (&right, &class(number)), 64));
    assert_eq!(three.write(64).0, CompletionStatus::Success);
    port.pause(3, u16::MAX);
    wait_for_pauses(&left, 1);
    three.post(64);
    // Its completion is that of class 0, whose request was posted later.
    assert_eq!(zero.write(64).0, CompletionStatus::Success);
    assert!(left.cq.spin_wait(Duration::from_millis(300)).is_none(), "the pause is still on");
    port.pause(3, 0);
    assert_eq!(left.completion().status, CompletionStatus::Success);
    assert_eq!(left.device.counter("resent_pkts").unwrap(), 0);
    assert_eq!(three.write(64).0, CompletionStatus::Success);
}

#[tier1]
fn a_neighbour_on_a_link_of_unknown_rate_pauses_nothing() {
    let cable = Cable::with_mtu(1500);
    let config = DeviceConfig { spin: Duration::ZERO, ..DeviceConfig::default() };
    let left = TestDevice::on(&cable.left, config.clone());
    let (right, mut port) = (TestDevice::on(&cable.right, config), Port::of(&cable));
    if !is_paused_by(&mut port, &left, &right) {
        return;
    }
    // Retries that are used up long before the pause would be over.
    let soon = ConnectOptions { timeout: 14, retry_count: 7, ..class(3) };
    let writer = Writer::connect((&left, &soon), (&right, &soon), 64);
    for _ in 0..10 {
        port.pause(3, u16::MAX);
    }
    wait_for_pauses(&left, 10);
    assert_eq!(writer.write(64).0, CompletionStatus::Success);
    assert_eq!(left.device.counter("ignored_pause_frames").unwrap(), 10 * shards());
    assert_eq!(left.device.counter("resent_pkts").unwrap(), 0);
}

#[tier1]
fn a_pause_ends_by_itself_after_its_quanta() {
    let cable = Cable::with_mtu(1500);
    let (left, right, mut port) = ends(&cable, 10);
    if !is_paused_by(&mut port, &left, &right) {
        return;
    }
    let writer = Writer::connect((&left, &class(3)), (&right, &class(3)), 64);
    assert_eq!(writer.write(64).0, CompletionStatus::Success);
    let began = Instant::now();
    port.pause(3, 30_000); // 300 ms
    wait_for_pauses(&left, 1);
    assert_eq!(writer.write(64).0, CompletionStatus::Success);
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(300), "{took:?}");
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[tier1]
fn the_pause_of_a_whole_link_stops_every_class() {
    let cable = Cable::with_mtu(1500);
    let (left, right, mut port) = ends(&cable, 10);
    if !is_paused_by(&mut port, &left, &right) {
        return;
    }
    let writers =
        [7, 0].map(|number| Writer::connect((&left, &class(number)), (&right, &class(number)), 64));
    let mut pause = PfcFrame::new(OTHER_END).to_bytes();
    // IEEE 802.3x: opcode 1, one time, here 300 ms.
    pause[14..18].copy_from_slice(&[0, 1, 0x75, 0x30]);
    let began = Instant::now();
    port.send(&pause);
    wait_for_pauses(&left, 1);
    for writer in &writers {
        assert_eq!(writer.write(64).0, CompletionStatus::Success);
        assert!(began.elapsed() >= Duration::from_millis(300), "{:?}", began.elapsed());
    }
}

#[tier1]
fn a_request_that_an_endless_pause_stops_fails_in_the_end() {
    let cable = Cable::with_mtu(1500);
    let (left, right, mut port) = ends(&cable, 1000);
    if !is_paused_by(&mut port, &left, &right) {
        return;
    }
    let soon = ConnectOptions { timeout: 14, retry_count: 2, ..class(3) };
    let writer = Writer::connect((&left, &soon), (&right, &soon), 64);
    port.pause(3, u16::MAX);
    wait_for_pauses(&left, 1);
    assert_ne!(writer.write(64).0, CompletionStatus::Success);
}
