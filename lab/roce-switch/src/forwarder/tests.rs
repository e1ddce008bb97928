use super::*;
use proptest::prelude::*;
use roce_fabric::{EcnMarking, PfcConfig, SwitchConfig};
use std::collections::VecDeque;

/// 1000 bytes with their 24 bytes of overhead take 1.024 ms on a line.
const RATE: u64 = 8_000_000;
const LEN: usize = 1000;

fn mac(port: usize) -> [u8; 6] {
    [2, 0, 0, 0, 0, port as u8]
}

/// Returns a numbered IPv4 frame.
fn frame(from: usize, to: [u8; 6], traffic_class: u8, number: u32) -> Vec<u8> {
    let mut frame = vec![0; LEN];
    frame[..6].copy_from_slice(&to);
    frame[6..12].copy_from_slice(&mac(from));
    frame[12..16].copy_from_slice(&[0x08, 0, 0x45, traffic_class]);
    frame[LEN - 4..].copy_from_slice(&number.to_be_bytes());
    frame
}

fn number(frame: &[u8]) -> u32 {
    u32::from_be_bytes(*frame.last_chunk().unwrap())
}

fn settings(queues: SwitchConfig) -> SwitchSettings {
    SwitchSettings { bits_per_sec: RATE, queues, ..SwitchSettings::default() }
}

/// Returns a switch that knows the address of each port.
fn switch(settings: &SwitchSettings, ports: usize) -> Forwarder {
    let mut switch = Forwarder::new(settings, ports);
    for port in 0..ports {
        switch.addresses.learn(Instant::START, MacAddr(mac(port)), port);
    }
    switch
}

/// Advances in steps and returns what left, with the time of the step.
fn drain(
    switch: &mut Forwarder,
    until: Duration,
    step: Duration,
) -> Vec<(Duration, usize, Vec<u8>)> {
    let mut left = Vec::new();
    let mut now = switch.report().elapsed;
    while now < until {
        now += step;
        switch.advance(now, &mut |port, frame| left.push((now, port, frame.to_vec())));
    }
    left
}

const STEP: Duration = Duration::from_micros(100);

#[test]
fn a_frame_for_an_unknown_or_a_group_address_leaves_by_all_other_ports() {
    for to in [mac(9), [0xff; 6], [0x33, 0x33, 0, 0, 0, 1]] {
        let mut switch = Forwarder::new(&settings(SwitchConfig::default()), 4);
        switch.receive(1, &frame(1, to, 0, 7));
        let left = drain(&mut switch, Duration::from_millis(20), STEP);
        let mut ports: Vec<_> = left.iter().map(|(_, port, _)| *port).collect();
        ports.sort_unstable();
        assert_eq!(ports, [0, 2, 3]);
        assert!(left.iter().all(|(.., bytes)| *bytes == frame(1, to, 0, 7)));
    }
}

#[test]
fn a_frame_for_a_learned_address_leaves_by_one_port_only() {
    let mut switch = Forwarder::new(&settings(SwitchConfig::default()), 4);
    switch.receive(2, &frame(2, [0xff; 6], 0, 1));
    drain(&mut switch, Duration::from_millis(20), STEP);
    switch.receive(1, &frame(1, mac(2), 0, 2));
    switch.receive(2, &frame(2, mac(2), 0, 3));
    let left = drain(&mut switch, Duration::from_millis(40), STEP);
    let left: Vec<_> = left.iter().map(|(_, port, frame)| (*port, number(frame))).collect();
    assert_eq!(left, [(2, 2)]);
}

#[test]
fn control_frames_of_a_link_are_not_forwarded() {
    let mut switch = Forwarder::new(&settings(SwitchConfig::default()), 2);
    switch.receive(0, &frame(0, [0x01, 0x80, 0xc2, 0, 0, 0x0e], 0, 0));
    switch.receive(0, &PfcFrame::new(MacAddr(mac(0))).with(3, 9).to_bytes());
    for len in 0..14 {
        switch.receive(0, &frame(0, mac(1), 0, 0)[..len]);
    }
    let left = drain(&mut switch, Duration::from_millis(20), STEP);
    assert_eq!(left, []);
}

/// Largest sum of frame lengths with overhead, in bits, within any window of this length.
fn most_bits(left: &[(Duration, usize, Vec<u8>)], window: Duration) -> u64 {
    let (mut inside, mut bits, mut most) = (VecDeque::new(), 0, 0);
    for (at, _, frame) in left {
        let len = (frame.len() as u64 + 24) * 8;
        inside.push_back((*at, len));
        bits += len;
        while inside.front().is_some_and(|(first, _)| *at - *first > window) {
            bits -= inside.pop_front().map_or(0, |(_, len)| len);
        }
        most = most.max(bits);
    }
    most
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn a_full_queue_leaves_at_the_rate_however_irregular_the_calls_are(
        steps in proptest::collection::vec(1u64..8_000, 100..300),
    ) {
        let mut switch = switch(&settings(SwitchConfig::default()), 3);
        for number in 0..2000 {
            switch.receive(number % 2, &frame(number % 2, mac(2), 0, number as u32));
        }
        let (mut now, mut left) = (Duration::ZERO, Vec::new());
        for micros in &steps {
            now += Duration::from_micros(*micros);
            switch.advance(now, &mut |port, frame| left.push((now, port, frame.to_vec())));
        }
        let window = Duration::from_millis(10);
        let allowed = (window + Forwarder::MAX_CATCH_UP).as_secs_f64() * RATE as f64;
        // Two frames may lie on the borders of the window.
        let most = most_bits(&left, window) as f64 - 2.0 * 8192.0;
        prop_assert!(most <= allowed, "{} bits, {} allowed", most, allowed);
        // Steps of up to 4 ms and the wait for an event lose nothing.
        let given_up = switch.report().timing.given_up;
        let late: u64 = steps.iter().map(|step| step.saturating_sub(4_000)).sum();
        prop_assert!(given_up <= Duration::from_micros(late), "{:?} of {} us", given_up, late);
        let expected = (now - given_up).as_secs_f64() * RATE as f64 / 8192.0;
        let frames = left.len() as f64;
        prop_assert!(frames <= expected && frames >= expected - 3.0, "{} of {}", frames, expected);
    }

    #[test]
    fn any_bytes_from_a_host_are_taken(frames: Vec<(u8, Vec<u8>)>) {
        let mut switch = Forwarder::new(&settings(SwitchConfig::default()), 3);
        for (port, bytes) in &frames {
            switch.receive(usize::from(port % 3), bytes);
        }
        drain(&mut switch, Duration::from_millis(50), Duration::from_millis(1));
    }
}

#[test]
fn frames_of_a_host_enter_the_switch_at_the_rate_of_the_port() {
    let mut switch = switch(&settings(SwitchConfig::default()), 2);
    (0..100).for_each(|number| switch.receive(0, &frame(0, mac(1), 0, number)));
    let left = drain(&mut switch, Duration::from_millis(200), STEP);
    assert_eq!(
        left.iter().map(|(.., frame)| number(frame)).collect::<Vec<_>>(),
        Vec::from_iter(0..100)
    );
    // The line before the switch is as fast as that behind it: no queue.
    assert!(switch.report().longest_queue.max <= LEN as u64);
}

#[test]
fn every_frame_leaves_or_is_counted_as_dropped() {
    let queues = SwitchConfig { buffer_bytes: 20_000, alpha: 1.0, ..SwitchConfig::default() };
    let mut switch = switch(&settings(queues), 5);
    for number in 0..400 {
        let from = 1 + number % 4;
        switch.receive(from, &frame(from, mac(0), 0, number as u32));
    }
    let left = drain(&mut switch, Duration::from_secs(2), STEP);
    let report = switch.report();
    let dropped: u64 = report.ports.iter().map(|port| port.counters.dropped_frames).sum();
    assert!(dropped > 50, "{dropped} dropped");
    assert_eq!(left.len() as u64 + dropped, 400);
    assert_eq!(report.ports[0].counters.tx_frames, left.len() as u64);
    let mut sum = PortCounters::default();
    report.ports.iter().for_each(|port| sum += port.counters);
    assert_eq!(sum.rx_bytes, 400 * LEN as u64);
    assert_eq!(sum.rx_bytes, sum.tx_bytes + sum.dropped_bytes);
    let queue = report.ports[0].classes[0].queue;
    assert!(queue.max <= 10_000 && queue.p50 >= 8_000, "{queue:?}");
}

#[test]
fn a_host_that_sends_too_much_loses_frames_before_the_switch() {
    let mut switch = switch(&settings(SwitchConfig::default()), 2);
    let count = 2 * MAX_HOST_QUEUE_BYTES / LEN as u64;
    (0..count).for_each(|number| switch.receive(0, &frame(0, mac(1), 0, number as u32)));
    let dropped = switch.report().ports[0].host_dropped_frames;
    assert!(dropped.abs_diff(count / 2) < 10, "{dropped} of {count}");
    // Another class has a queue of its own.
    switch.receive(0, &frame(0, mac(1), 0xc0, 0));
    assert_eq!(switch.report().ports[0].host_dropped_frames, dropped);
}

#[test]
fn ce_appears_on_frames_with_ect_and_a_long_queue_only() {
    let queues = SwitchConfig {
        marking: [Some(EcnMarking { kmin: 5_000, kmax: 5_000, pmax: 1.0 }); CLASSES],
        ..settings(SwitchConfig::default()).queues
    };
    let mut switch = switch(&settings(queues), 4);
    for number in 0..150 {
        let from = 1 + number % 3;
        let traffic_class = if from == 3 { 0 } else { 2 };
        switch.receive(from, &frame(from, mac(0), traffic_class, number as u32));
    }
    let left = drain(&mut switch, Duration::from_secs(1), STEP);
    assert_eq!(left.len(), 150);
    let marked = left.iter().filter(|(.., frame)| frame[15] & 3 == 3).count();
    assert!((60..100).contains(&marked), "{marked} marked");
    assert_eq!(switch.report().ports[0].counters.marked_frames, marked as u64);
    for (.., bytes) in &left {
        let from = 1 + number(bytes) as usize % 3;
        assert!(from != 3 || bytes[15] == 0, "a frame without ECT was marked");
    }
}

#[test]
fn a_lossless_class_loses_nothing_and_its_hosts_get_pause_frames() {
    let queues = SwitchConfig {
        buffer_bytes: 30_000,
        pfc: Some(PfcConfig::for_link(3, RATE, Duration::from_micros(1), LEN as u64)),
        ..settings(SwitchConfig::default()).queues
    };
    let mut switch = switch(&settings(queues), 5);
    for number in 0..400 {
        let from = 1 + number % 4;
        switch.receive(from, &frame(from, mac(0), 3 << 5, number as u32));
    }
    let left = drain(&mut switch, Duration::from_secs(1), STEP);
    let (pauses, frames): (Vec<_>, Vec<_>) =
        left.iter().partition(|(.., frame)| PfcFrame::parse(frame).is_ok());
    assert_eq!(frames.len(), 400);
    let report = switch.report();
    let (mut xoff, mut xon) = (0, 0);
    for (_, port, frame) in &pauses {
        let quanta = PfcFrame::parse(frame).unwrap().quanta(3).unwrap();
        *(if quanta == 0 { &mut xon } else { &mut xoff }) += 1;
        assert_ne!(*port, 0, "the receiver has nothing to stop");
    }
    let sent = |count: fn(&PortCounters) -> u64| -> u64 {
        report.ports.iter().map(|port| count(&port.counters)).sum()
    };
    assert!(xoff > 4, "{xoff} XOFF");
    assert_eq!((xoff, xon), (sent(|it| it.xoff_sent), sent(|it| it.xon_sent)));
    assert_eq!(sent(|it| it.dropped_frames), 0);
}

#[test]
fn a_pause_frame_of_a_host_stops_what_the_switch_sends_it() {
    let queues = SwitchConfig {
        pfc: Some(PfcConfig::for_link(3, RATE, Duration::from_micros(1), LEN as u64)),
        ..settings(SwitchConfig::default()).queues
    };
    let mut switch = switch(&settings(queues), 2);
    // 100 quanta of 512 bits take 6.4 ms.
    switch.receive(1, &PfcFrame::new(MacAddr(mac(1))).with(3, 100).to_bytes());
    drain(&mut switch, Duration::from_millis(1), STEP);
    switch.receive(0, &frame(0, mac(1), 3 << 5, 1));
    switch.receive(0, &frame(0, mac(1), 0, 2));
    let left = drain(&mut switch, Duration::from_millis(20), STEP);
    let left: Vec<_> = left.iter().map(|(at, _, frame)| (at.as_millis(), number(frame))).collect();
    assert!(matches!(left[..], [(4, 2), (7, 1)]), "{left:?}");
    assert_eq!(switch.report().ports[1].counters.paused, 1);
}

#[test]
fn an_idle_switch_has_no_next_event_and_takes_no_samples() {
    let mut switch = switch(&settings(SwitchConfig::default()), 2);
    assert_eq!(switch.next_event(), None);
    switch.receive(0, &frame(0, mac(1), 0, 1));
    assert!(switch.next_event().is_some());
    drain(&mut switch, Duration::from_millis(10), STEP);
    assert_eq!(switch.next_event(), None);
    let samples = switch.report().longest_queue.samples;
    assert!(samples > 0);
    drain(&mut switch, Duration::from_secs(3), Duration::from_millis(700));
    assert_eq!(switch.report().longest_queue.samples, samples);
    assert_eq!(switch.report().timing.given_up, Duration::ZERO);
}
