//! RDMA through a switch with queues, marks and pauses, over real interfaces.

use std::thread;
use std::time::{Duration, Instant};

use roce_io::{AfPacket, AfPacketConfig, FrameDevice, GsoMode, RxFrame, TxFrame};
use roce_switch::{CLASSES, EcnMarking, PfcConfig, SwitchConfig, SwitchReport, SwitchSettings};
use roce_test_macros::tier1;
use roce_tests::fixtures::{TestDevice, connect, contents, pattern};
use roce_tests::ip::wait_until;
use roce_tests::switched_network::SwitchedNetwork;
use roce_verbs::{
    CompletionStatus, ConnectOptions, DeviceConfig, RemoteAddr, SendOperation, SendWr, Service,
};
use roce_wire::BadIcrc;

const MTU: u32 = 4200;
const RATE: u64 = 200_000_000;
/// Bytes of a WRITE.
const LEN: usize = 64 << 10;

fn settings(queues: SwitchConfig) -> SwitchSettings {
    SwitchSettings { bits_per_sec: RATE, queues, ..SwitchSettings::default() }
}

/// Queues of which each may hold as much as is free of a buffer.
fn queues(buffer_bytes: u64) -> SwitchConfig {
    SwitchConfig { buffer_bytes, ..SwitchSettings::default().queues }
}

fn class(number: u8) -> ConnectOptions {
    ConnectOptions { traffic_class: number << 5, ..ConnectOptions::default() }
}

fn device(network: &SwitchedNetwork, host: usize) -> TestDevice {
    TestDevice::on(&network.hosts[host], DeviceConfig::default())
}

/// Writes so many times from `left` to `right`, eight at once, and checks the data. Returns how long
/// it took.
fn write(left: &TestDevice, right: &TestDevice, options: &ConnectOptions, count: u64) -> Duration {
    let (here, _there) = connect(left, right, options);
    let (ours, theirs) = (left.region(LEN, 1), right.region(LEN, 2));
    let to = RemoteAddr { addr: theirs.address(), rkey: theirs.rkey() };
    let post = |id: u64| {
        let data = [ours.sge(..LEN).unwrap()];
        here.post_send([SendWr::new(id, SendOperation::write(to), data).signaled()]).unwrap();
    };
    let began = Instant::now();
    (0..count.min(8)).for_each(post);
    for id in 8..count + 8 {
        assert_eq!(left.completion().status, CompletionStatus::Success);
        if id < count {
            post(id);
        }
    }
    let took = began.elapsed();
    assert!(contents(&theirs) == pattern(LEN, 1), "what was written arrived");
    took
}

fn sum(report: &SwitchReport, count: fn(&roce_switch::PortReport) -> u64) -> u64 {
    report.ports.iter().map(count).sum()
}

#[tier1]
fn frames_pass_a_switch_unharmed_at_the_rate_of_its_ports() {
    const WRITES: u64 = 200;
    // Each packet of 4096 bytes has 58 bytes of headers and 24 beside the frame.
    let bits = (WRITES * LEN as u64) as f64 * 8.0 * (4096.0 + 82.0) / 4096.0;
    let ideal = bits / RATE as f64;
    let mut best = f64::INFINITY;
    for _ in 0..3 {
        let network = SwitchedNetwork::new(&settings(queues(1 << 20)), 2, MTU);
        let (left, right) = (device(&network, 0), device(&network, 1));
        let took = write(&left, &right, &ConnectOptions::default(), WRITES).as_secs_f64();
        write(&right, &left, &ConnectOptions::default(), 10);
        for end in [&left, &right] {
            assert_eq!(end.device.counter(BadIcrc::COUNTER).unwrap(), 0);
        }
        let report = network.stop();
        assert!(report.ports[1].counters.tx_frames >= WRITES * 16);
        assert_eq!(sum(&report, |port| port.unusable_frames + port.unsent_frames), 0);
        assert!(took > ideal * 0.98, "{took} s are faster than the ports, {ideal} s");
        best = took.min(best);
        if best < ideal * 1.1 {
            return;
        }
        // Another process had the processor.
    }
    panic!("{best} s instead of {ideal} s");
}

#[tier1]
fn ce_appears_on_packets_with_ect_only() {
    // Every packet finds its queue long enough.
    let marking = [Some(EcnMarking { kmin: 0, kmax: 0, pmax: 1.0 }); CLASSES];
    let network =
        SwitchedNetwork::new(&settings(SwitchConfig { marking, ..queues(1 << 20) }), 2, MTU);
    let (left, right) = (device(&network, 0), device(&network, 1));
    let marked = || right.device.counter("np_ecn_marked_roce_packets").unwrap();
    write(&left, &right, &ConnectOptions::default(), 20);
    assert_eq!(marked(), 0);
    let capable = ConnectOptions { traffic_class: 2, ..ConnectOptions::default() };
    write(&left, &right, &capable, 20);
    assert!(marked() >= 20 * 16, "{} marked", marked());
    let arrived = marked();
    let report = network.stop();
    let kept = right.device.counter("socket_rcvd_dropped").unwrap();
    let sent = report.ports[1].counters.marked_frames;
    assert!((arrived..=arrived + kept).contains(&sent), "{sent} marked, {arrived} seen");
}

#[tier1]
fn a_frame_keeps_its_vlan_tags_and_has_the_class_of_its_dscp() {
    let network = SwitchedNetwork::new(&settings(queues(1 << 20)), 2, MTU);
    let open = |host: usize| {
        let config =
            AfPacketConfig { promiscuous: true, gso: GsoMode::Off, ..AfPacketConfig::new("eth0") };
        network.hosts[host].run(|| AfPacket::open(&config)).expect("a packet socket")
    };
    let (mut left, mut right) = (open(0), open(1));
    let (one, two) = ([0x81, 0x00, 0xa0, 0x05], [0x88, 0xa8, 0xe0, 0x07, 0x81, 0x00, 0xa0, 0x05]);
    for (tags, payload) in [(&one[..], 46), (&one, MTU as usize), (&two, 46), (&[], MTU as usize)] {
        // To an address that the switch has not learned; IPv4 with traffic class 106.
        let mut sent = [[2, 0, 0, 0, 0, 9], [2, 0, 0, 0, 0, 8]].concat();
        sent.extend_from_slice(tags);
        sent.extend([0x08, 0x00, 0x45, 106]);
        sent.resize(ETHERNET_LEN + tags.len() + payload, 0x5a);
        let mut frames = vec![sent.clone()];
        left.transmit(&mut |slot| {
            let frame = frames.pop()?;
            slot[..frame.len()].copy_from_slice(&frame);
            Some(TxFrame::single(frame.len()))
        })
        .expect("the interface takes it");
        let mut received = Vec::new();
        wait_until("the frame arrives", || {
            let take = &mut |frame: RxFrame<'_>| {
                if frame.bytes[6..12] == sent[6..12] {
                    let tag = frame.vlan_tag.map_or(Vec::new(), Vec::from);
                    received = [&frame.bytes[..12], &tag, &frame.bytes[12..]].concat();
                }
            };
            right.receive(64, take).expect("the interface is up");
            !received.is_empty()
        });
        assert!(received == sent, "{tags:x?}: {} of {} bytes", received.len(), sent.len());
    }
    let report = network.stop();
    let classes = &report.ports[1].classes;
    let of_data = classes.iter().find(|it| it.class == 3).expect("class 3 had frames");
    assert_eq!(of_data.counters.tx_frames, 4);
    assert_eq!(sum(&report, |port| port.unusable_frames + port.unsent_frames), 0);
}

const ETHERNET_LEN: usize = 14;

#[tier1]
fn a_lossless_class_loses_nothing_while_two_hosts_send_to_one() {
    let delay = Duration::from_micros(1);
    let pfc = PfcConfig::for_link(3, RATE, delay, u64::from(MTU) + 14);
    let lossless = settings(SwitchConfig { pfc: Some(pfc), ..queues(64 << 10) });
    let network = SwitchedNetwork::new(&lossless, 3, MTU);
    let [sink, first, second] = [0, 1, 2].map(|host| {
        let config = DeviceConfig { link_rate: Some(RATE), ..DeviceConfig::default() };
        TestDevice::on(&network.hosts[host], config)
    });
    thread::scope(|scope| {
        for sender in [&first, &second] {
            scope.spawn(|| write(sender, &sink, &class(3), 100));
        }
    });
    let report = network.stop();
    if !first.sees_pauses() {
        println!("{} honours no pauses, so that nothing is lossless", first.device.backend());
        let sent = report.ports[1..].iter().map(|port| port.counters.xoff_sent);
        assert!(sent.sum::<u64>() > 0, "the switch pauses in vain");
        return;
    }
    assert_eq!(sum(&report, |port| port.counters.dropped_frames + port.host_dropped_frames), 0);
    for (port, sender) in report.ports[1..].iter().zip([&first, &second]) {
        let of_class = port.classes.iter().find(|it| it.class == 3).unwrap();
        assert!(of_class.counters.xoff_sent > 0, "{port:?}");
        assert!(sender.device.counter("rcvd_pause_frames").unwrap() > 0);
    }
    assert_eq!(report.ports[0].counters.xoff_sent, 0);
}

#[tier1]
fn what_is_missing_was_dropped_by_a_full_buffer_and_is_counted() {
    const WRITES: u64 = 60;
    let network = SwitchedNetwork::new(&settings(queues(64 << 10)), 3, MTU);
    let [sink, first, second] = [0, 1, 2].map(|host| device(&network, host));
    let pairs = [&first, &second].map(|sender| {
        let ends = [sender, &sink].map(|end| {
            let builder = end.pd.queue_pair(&end.cq, &end.cq).service(Service::Uc);
            builder.max_send_wr(WRITES as u32).build().unwrap()
        });
        let dests = ends.each_ref().map(|qp| qp.dest(None).unwrap());
        ends[0].connect(&dests[1], &class(1)).unwrap();
        ends[1].connect(&dests[0], &class(1)).unwrap();
        (sender, ends)
    });
    let theirs = sink.region(LEN, 2);
    let to = RemoteAddr { addr: theirs.address(), rkey: theirs.rkey() };
    for (sender, ends) in &pairs {
        let ours = sender.region(LEN, 1);
        let work = |id| {
            let data = [ours.sge(..LEN).unwrap()];
            SendWr::new(id, SendOperation::write(to), data).signaled()
        };
        ends[0].post_send((0..WRITES).map(work)).unwrap();
        for _ in 0..WRITES {
            assert_eq!(sender.completion().status, CompletionStatus::Success);
        }
    }
    let count = |end: &TestDevice, name: &str| end.device.counter(name).unwrap();
    let mut arrived = None;
    while arrived != Some(count(&sink, "device_rcvd_frames")) {
        arrived = Some(count(&sink, "device_rcvd_frames"));
        thread::sleep(Duration::from_millis(300));
    }
    let sent = count(&first, "device_sent_frames") + count(&second, "device_sent_frames");
    assert_eq!(sent, 2 * WRITES * 16);
    let missing = sent - arrived.unwrap();
    let report = network.stop();
    let dropped: u64 = report
        .ports
        .iter()
        .flat_map(|port| &port.classes)
        .filter(|it| it.class == 1)
        .map(|it| it.counters.dropped_frames)
        .sum();
    let elsewhere =
        sum(&report, |port| port.host_dropped_frames) + count(&sink, "socket_rcvd_dropped");
    assert!(dropped > 0, "two senders at the rate of one port overfill the buffer");
    assert_eq!(missing, dropped + elsewhere);
}
