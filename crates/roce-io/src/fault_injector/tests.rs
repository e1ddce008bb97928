use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use roce_faults::FaultRule;
use roce_wire::{Bth, Headers, OuterHeaders, Psn, Qpn, Sealer, UdpChecksum, opcode};

use super::*;
use crate::pcap_writer::tests::{IN, OUT, Shared, read_back};
use crate::segmenter::tests::ipv4_frame;
use crate::{CaptureFile, MemoryConfig, MemoryDevice, PcapWriter, memory_pair};

/// A clock that stands still until it is told.
#[derive(Clone)]
struct Clock(Arc<Mutex<Instant>>);

impl Clock {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }
    fn now(&self) -> Instant {
        *self.0.lock().unwrap()
    }
    fn advance(&self, by: Duration) {
        *self.0.lock().unwrap() += by;
    }
}

/// A faulty end, the plain end it is joined to, and the faulty end's clock.
fn faulty(config: FaultConfig) -> (FaultInjector<MemoryDevice>, MemoryDevice, Clock) {
    let (here, there) = memory_pair(&MemoryConfig::default());
    let clock = Clock::new();
    let its = clock.clone();
    (FaultInjector::new(here, &config).with_clock(move || its.now()), there, clock)
}

fn script(rules: &[&str]) -> FaultConfig {
    let script = rules.iter().map(|rule| FaultRule::parse(rule).unwrap()).collect();
    FaultConfig { script, ..FaultConfig::default() }
}

/// Sends packets that hold these numbers.
fn send(device: &mut impl FrameDevice, numbers: impl IntoIterator<Item = u32>) {
    let mut numbers = numbers.into_iter().peekable();
    while numbers.peek().is_some() {
        device
            .transmit(&mut |slot| {
                slot[..60].fill(0);
                slot[56..60].copy_from_slice(&numbers.next()?.to_be_bytes());
                Some(TxFrame::single(60))
            })
            .unwrap();
    }
}

fn receive(device: &mut impl FrameDevice) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    while device.receive(16, &mut |frame| packets.push(frame.bytes.to_vec())).unwrap() > 0 {}
    packets
}

fn numbers(device: &mut impl FrameDevice) -> Vec<u32> {
    let number = |packet: &Vec<u8>| u32::from_be_bytes(*packet.last_chunk().unwrap());
    receive(device).iter().map(number).collect()
}

#[test]
fn without_faults_nothing_changes_but_that_trains_are_cut() {
    let (mut here, mut there, _) = faulty(FaultConfig::default());
    let train = ipv4_frame(4791, &[7; 250]);
    let mut once = Some(&train);
    let mut fill = |slot: &mut [u8]| {
        let train = once.take()?;
        slot[..train.len()].copy_from_slice(train);
        Some(TxFrame::train(train.len(), 42, 100))
    };
    here.transmit(&mut fill).unwrap();
    let lens: Vec<_> = receive(&mut there).iter().map(Vec::len).collect();
    assert_eq!(lens, [142, 142, 92]);
    once = Some(&train);
    let mut fill = |slot: &mut [u8]| {
        let train = once.take()?;
        slot[..train.len()].copy_from_slice(train);
        Some(TxFrame::train(train.len(), 42, 100))
    };
    there.transmit(&mut fill).unwrap();
    let lens: Vec<_> = receive(&mut here).iter().map(Vec::len).collect();
    assert_eq!(lens, [142, 142, 92]);
}

#[test]
fn each_packet_of_a_train_has_its_own_fate() {
    let (mut here, mut there, _) = faulty(script(&["drop sent packet 2"]));
    let train = ipv4_frame(4791, &[7; 250]);
    let mut once = Some(&train);
    here.transmit(&mut |slot| {
        let train = once.take()?;
        slot[..train.len()].copy_from_slice(train);
        Some(TxFrame::train(train.len(), 42, 100))
    })
    .unwrap();
    let lens: Vec<_> = receive(&mut there).iter().map(Vec::len).collect();
    assert_eq!(lens, [142, 92]);
}

#[test]
fn a_dropped_packet_vanishes_and_no_other() {
    let (mut here, mut there, _) = faulty(script(&["drop sent packet 2", "drop sent packet 4"]));
    send(&mut here, 0..5);
    assert_eq!(numbers(&mut there), [0, 2, 4]);
}

#[test]
fn a_script_for_one_direction_leaves_the_other_alone() {
    let (mut here, mut there, _) = faulty(script(&["drop sent packet 1"]));
    send(&mut there, 0..2);
    assert_eq!(numbers(&mut here), [0, 1]);
    let (mut here, mut there, _) = faulty(script(&["drop received packet 1"]));
    send(&mut there, 0..2);
    assert_eq!(numbers(&mut here), [1]);
    send(&mut here, 0..2);
    assert_eq!(numbers(&mut there), [0, 1]);
}

#[test]
fn a_duplicated_packet_comes_twice() {
    let (mut here, mut there, _) = faulty(script(&["duplicate sent packet 2"]));
    send(&mut here, 0..3);
    assert_eq!(numbers(&mut there), [0, 1, 1, 2]);
}

#[test]
fn a_corrupted_packet_differs_in_one_bit_behind_the_ethernet_header() {
    for seed in 0..200 {
        let config = FaultConfig { seed, ..script(&["damage sent packet 1"]) };
        let (mut here, mut there, _) = faulty(config);
        send(&mut here, [0]);
        let packet = receive(&mut there).remove(0);
        assert_eq!(packet.len(), 60);
        assert_eq!(packet.iter().map(|byte| byte.count_ones()).sum::<u32>(), 1);
        assert!(packet[..14].iter().all(|&byte| byte == 0));
    }
}

#[test]
fn a_packet_is_marked_if_its_sender_allows_it_and_only_then_counted() {
    let (mut here, mut there, _) = faulty(script(&["mark sent packets 1 to 2"]));
    // IPv6, with ECT(0) and without.
    let mut services = [0x20, 0x00].into_iter();
    let sent = here.transmit(&mut |slot| {
        slot[..60].fill(0);
        slot[12..16].copy_from_slice(&[0x86, 0xdd, 0x60, services.next()?]);
        Some(TxFrame::single(60))
    });
    assert_eq!(sent.unwrap(), 2);
    let services: Vec<u8> = receive(&mut there).iter().map(|packet| packet[15]).collect();
    assert_eq!(services, [0x30, 0x00]);
    let marked = here.counters().into_iter().find(|(name, _)| *name == "fault_sent_marked");
    assert_eq!(marked, Some(("fault_sent_marked", 1)));
}

#[test]
fn a_delayed_packet_comes_when_it_is_due_and_not_before() {
    let by = Duration::from_millis(7);
    let (mut here, mut there, clock) = faulty(script(&["delay sent packet 1 by 7ms"]));
    send(&mut here, 0..2);
    assert_eq!(numbers(&mut there), [1]);
    assert_eq!(here.wake_at(), Some(clock.now() + by));
    clock.advance(by - Duration::from_nanos(1));
    assert_eq!(numbers(&mut here), []);
    assert_eq!(numbers(&mut there), []);
    clock.advance(Duration::from_nanos(1));
    assert_eq!(numbers(&mut here), []);
    assert_eq!(numbers(&mut there), [0]);
    assert_eq!(here.wake_at(), None);
}

#[test]
fn a_delayed_packet_comes_in_when_it_is_due() {
    let by = Duration::from_millis(7);
    let (mut here, mut there, clock) = faulty(script(&["delay received packet 1 by 7ms"]));
    send(&mut there, 0..2);
    assert_eq!(numbers(&mut here), [1]);
    assert_eq!(here.wake_at(), Some(clock.now() + by));
    clock.advance(by);
    assert_eq!(numbers(&mut here), [0]);
}

#[test]
fn a_reordered_packet_comes_behind_those_that_overtake_it() {
    let (mut here, mut there, _) = faulty(script(&["hold sent packet 2 behind 2 packets"]));
    send(&mut here, 0..6);
    assert_eq!(numbers(&mut there), [0, 2, 3, 1, 4, 5]);
}

#[test]
fn a_reordered_packet_that_no_other_overtakes_comes_after_all() {
    let rates = FaultRates { reorder: 1.0, ..FaultRates::default() };
    let config = FaultConfig { outbound: rates, ..FaultConfig::default() };
    let (mut here, mut there, clock) = faulty(config);
    send(&mut here, 0..1);
    assert_eq!(numbers(&mut there), []);
    clock.advance(FaultConfig::default().reorder_hold);
    assert_eq!(numbers(&mut here), []);
    assert_eq!(numbers(&mut there), [0]);
}

#[test]
fn a_held_packet_follows_the_one_that_it_waits_for() {
    let (mut here, mut there, _) = faulty(script(&["hold sent packet 1 until sent packet 4"]));
    send(&mut here, 0..6);
    assert_eq!(numbers(&mut there), [1, 2, 3, 0, 4, 5]);
    let (mut here, mut there, _) = faulty(script(&["hold sent packet 1 until received packet 2"]));
    send(&mut here, 0..2);
    assert_eq!(numbers(&mut there), [1]);
    send(&mut there, 0..1);
    assert_eq!((numbers(&mut here), numbers(&mut there)), (vec![0], vec![]));
    send(&mut there, 1..2);
    assert_eq!(numbers(&mut here), [1]);
    assert_eq!(numbers(&mut here), []);
    assert_eq!(numbers(&mut there), [0]);
}

#[test]
fn a_copy_comes_as_late_as_the_script_says() {
    let (mut here, mut there, clock) = faulty(script(&["duplicate sent packet 1 after 3us"]));
    send(&mut here, 0..2);
    assert_eq!(numbers(&mut there), [0, 1]);
    clock.advance(Duration::from_micros(3));
    assert_eq!((numbers(&mut here), numbers(&mut there)), (vec![], vec![0]));
}

#[test]
fn a_bit_is_damaged_by_its_number() {
    let (mut here, mut there, _) = faulty(script(&["damage bit 161 of sent packet 1"]));
    send(&mut here, [0]);
    let packet = receive(&mut there).remove(0);
    assert_eq!((packet[20], packet.iter().filter(|byte| **byte != 0).count()), (0x40, 1));
}

#[test]
fn a_fault_that_cannot_change_its_packet_is_told_and_leaves_it_as_it_was() {
    let config = script(&["damage bit 480 of sent packet 1", "mark sent packet 2"]);
    let (here, mut there) = memory_pair(&MemoryConfig::default());
    let script = FaultScript::new(&config);
    let mut here = FaultInjector::with_script(here, &config, script.clone());
    send(&mut here, 0..2);
    assert_eq!(numbers(&mut there), [0, 1]);
    let told: Vec<_> = script.events().into_iter().map(|event| event.obstacle).collect();
    let damage = "not damaged: bit 480 is beyond the frame of 480 bits";
    let mark = "not marked: its sender has set no ECT";
    assert_eq!(told, [damage, mark].map(|text| Some(text.to_owned())));
    for name in ["fault_sent_corrupted", "fault_sent_marked"] {
        assert!(here.counters().contains(&(name, 0)), "{name}");
    }
}

/// A faulty end with a capture inside, its plain peer, its clock, and the file.
fn captured(
    rules: &[&str],
) -> (FaultInjector<PcapWriter<MemoryDevice>>, MemoryDevice, Clock, Shared) {
    let (here, there) = memory_pair(&MemoryConfig::default());
    let (clock, written) = (Clock::new(), Shared::default());
    let file = CaptureFile::new(written.clone()).unwrap();
    let here = PcapWriter::of_sent(here, &file, "eth0");
    let its = clock.clone();
    let here = FaultInjector::new(here, &script(rules)).with_clock(move || its.now());
    (here, there, clock, written)
}

/// Returns direction, number and comment of each packet of a capture.
fn comments(written: &Shared) -> Vec<(u32, u8, String)> {
    let (_, packets) = read_back(&written.bytes());
    packets.into_iter().map(|it| (it.direction, it.bytes[59], it.comment)).collect()
}

#[test]
fn a_capture_has_each_packet_once_and_what_faults_did_to_it() {
    let rules = [
        "drop packet 2",
        "duplicate packet 3",
        "damage bit 0 of packet 4",
        "delay packet 5 by 1ms",
        "hold packet 6 behind 1 packet",
        "hold packet 8 until packet 9",
        "damage bit 1 of packet 9",
        "delay packet 9 by 1ms",
    ];
    let expected = [
        (0, ""),
        (1, "lost: scripted fault 1"),
        (2, "duplicated: scripted fault 2"),
        (2, "duplicated: scripted fault 2"),
        (3, "damaged: scripted fault 3"),
        (6, ""),
        (5, "reordered: scripted fault 5"),
        (7, "held: scripted fault 6"),
        (4, "delayed: scripted fault 4"),
        (8, "damaged: scripted fault 7; delayed: scripted fault 8"),
    ];
    for direction in [OUT, IN] {
        let (mut here, mut there, clock, written) = captured(&rules);
        match direction {
            OUT => send(&mut here, 0..9),
            _ => send(&mut there, 0..9),
        }
        receive(&mut here);
        clock.advance(Duration::from_millis(1));
        receive(&mut here);
        let expected = expected.map(|(number, text)| (direction, number, text.to_owned()));
        assert_eq!(comments(&written), expected);
    }
}

#[test]
fn what_is_held_when_the_device_is_closed_is_in_the_capture_with_the_reason() {
    for (direction, end) in [(OUT, "not sent"), (IN, "not received")] {
        let (mut here, mut there, _, written) = captured(&["hold packet 1 until packet 3"]);
        match direction {
            OUT => send(&mut here, 0..2),
            _ => send(&mut there, 0..2),
        }
        receive(&mut here);
        let passed = (direction, 1, String::new());
        assert_eq!(comments(&written), std::slice::from_ref(&passed));
        for _ in 0..2 {
            here.abandon_held();
            let text = format!("held: scripted fault 1; {end}: the device was closed before");
            assert_eq!(comments(&written), [passed.clone(), (direction, 0, text)]);
        }
    }
}

#[test]
fn a_script_that_devices_share_counts_the_packets_of_all() {
    let config = script(&["drop sent packet 3"]);
    let shared = FaultScript::new(&config);
    let mut arrived = Vec::new();
    for device in 0..2 {
        let (here, mut there) = memory_pair(&MemoryConfig::default());
        let mut here = FaultInjector::with_script(here, &config, shared.clone());
        send(&mut here, device * 2..device * 2 + 2);
        arrived.extend(numbers(&mut there));
    }
    assert_eq!(arrived, [0, 1, 3]);
    let events = shared.events();
    assert_eq!(events.len(), 1);
    assert_eq!((events[0].rule, events[0].number), (0, 1));
}

#[test]
fn a_device_that_leaves_received_packets_alone_lends_them_as_they_are() {
    let rates = FaultRates { drop: 1.0, ..FaultRates::default() };
    let config = FaultConfig { inbound: rates, outbound: rates, ..FaultConfig::default() };
    let (here, mut there) = memory_pair(&MemoryConfig::default());
    let mut here = FaultInjector::new(here, &config).of_sent();
    send(&mut there, 0..3);
    assert_eq!(numbers(&mut here), [0, 1, 2]);
    send(&mut here, 0..3);
    assert_eq!(numbers(&mut there), []);
}

#[test]
fn a_log_has_a_line_for_each_of_the_first_events_and_then_for_powers_of_two() {
    let path = std::env::temp_dir().join(format!("roce-fault-log-{}", std::process::id()));
    std::fs::write(&path, "").unwrap();
    let config = FaultConfig { log: Some(path.clone()), ..script(&["drop every sent packet"]) };
    let (mut here, _there, _) = faulty(config);
    send(&mut here, 0..100);
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let events: Vec<_> = text.lines().map(|line| FaultEvent::parse(line).unwrap()).collect();
    let numbers: Vec<_> = events.iter().map(|event| event.number).collect();
    assert_eq!(numbers, (1..=16).chain([32, 64]).collect::<Vec<_>>());
    assert!(events.iter().all(|event| event.process == std::process::id()));
}

#[test]
fn a_packet_that_waits_for_its_receivers_budget_wakes_it_at_once() {
    let (mut here, mut there, clock) = faulty(FaultConfig::default());
    there.transmit(&mut |_| None).unwrap();
    let train = ipv4_frame(4791, &[7; 250]);
    let mut once = Some(&train);
    there
        .transmit(&mut |slot| {
            let train = once.take()?;
            slot[..train.len()].copy_from_slice(train);
            Some(TxFrame::train(train.len(), 42, 100))
        })
        .unwrap();
    assert_eq!(here.receive(1, &mut |_| ()).unwrap(), 1);
    assert!(here.wake_at().unwrap() <= clock.now());
    assert_eq!(here.receive(8, &mut |_| ()).unwrap(), 2);
    assert_eq!(here.wake_at(), None);
}

#[test]
fn a_seed_repeats_a_run_and_another_seed_does_not() {
    let run = |seed| {
        let rates = FaultRates {
            drop: 0.2,
            duplicate: 0.2,
            reorder: 0.2,
            corrupt: 0.2,
            ..FaultRates::default()
        };
        let (mut here, mut there, _) =
            faulty(FaultConfig { seed, outbound: rates, ..FaultConfig::default() });
        send(&mut here, 0..500);
        receive(&mut there)
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

/// Returns a packet of a connection to this queue pair, with this sequence number.
fn request(to: u32, psn: u32) -> Vec<u8> {
    let [own, peer] = [1, 2].map(|last| std::net::IpAddr::from([10, 0, 0, last]));
    let outer = OuterHeaders::new(own, peer);
    let (to, psn) = (Qpn::new(to).unwrap(), Psn::new(psn).unwrap());
    let mut body = [0; 64];
    let len = Headers::new(Bth::new(opcode::RC_SEND_ONLY, to, psn)).emit(&mut body);
    let mut frame = vec![0; outer.len()];
    frame.extend(&body[..len + 4]);
    let sealer = Sealer::new(&outer).unwrap();
    sealer.seal(0xc123, 7, &mut frame, len + 4, UdpChecksum::Zero).unwrap();
    frame
}

#[test]
fn what_a_seed_decides_for_a_queue_pair_does_not_depend_on_packets_of_others() {
    let rates = FaultRates { drop: 0.5, ..FaultRates::default() };
    let config = FaultConfig { seed: 7, outbound: rates, ..FaultConfig::default() };
    let arrived = |others: usize| -> Vec<Vec<u8>> {
        let (mut here, mut there, _) = faulty(config.clone());
        let mut all = Vec::new();
        for psn in 0..200 {
            let of_others = (0..others as u32).map(|other| request(100 + other, psn));
            for packet in std::iter::once(request(17, psn)).chain(of_others) {
                let mut packet = Some(packet);
                here.transmit(&mut |slot| {
                    let packet = packet.take()?;
                    slot[..packet.len()].copy_from_slice(&packet);
                    Some(TxFrame::single(packet.len()))
                })
                .unwrap();
            }
            all.extend(receive(&mut there));
        }
        let is_of_17 = |packet: &Vec<u8>| (0..200).any(|psn| *packet == request(17, psn));
        all.retain(is_of_17);
        all
    };
    let alone = arrived(0);
    assert!((60..140).contains(&alone.len()), "{}", alone.len());
    assert_eq!(arrived(1), alone);
    assert_eq!(arrived(3), alone);
}

#[test]
fn the_dice_are_fair() {
    let rates = FaultRates { drop: 0.1, ..FaultRates::default() };
    let (mut here, mut there, _) = faulty(FaultConfig { outbound: rates, ..Default::default() });
    let mut arrived = 0;
    for batch in 0..20 {
        send(&mut here, batch * 500..(batch + 1) * 500);
        arrived += numbers(&mut there).len();
    }
    // Ten standard deviations: 30 each.
    assert!((8700..9300).contains(&arrived), "{arrived} of 10000");
    assert!(here.counters().contains(&("fault_sent_dropped", 10_000 - arrived as u64)));
}

#[test]
fn odds_beyond_certainty_are_certainty_and_nonsense_is_never() {
    for (drop, arrive) in [(1.0, 0), (7.0, 0), (-1.0, 9), (f64::NAN, 9)] {
        let outbound = FaultRates { drop, ..FaultRates::default() };
        let (mut here, mut there, _) = faulty(FaultConfig { outbound, ..Default::default() });
        send(&mut here, 0..9);
        assert_eq!(numbers(&mut there).len(), arrive, "{drop}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn without_dropping_every_packet_arrives_and_none_is_invented(
        seed in any::<u64>(),
        duplicate in 0.0..1.0f64,
        delay in 0.0..1.0f64,
        reorder in 0.0..1.0f64,
        count in 1u32..200,
    ) {
        let rates = FaultRates { duplicate, delay, reorder, ..FaultRates::default() };
        let (mut here, mut there, clock) =
            faulty(FaultConfig { seed, inbound: rates, ..FaultConfig::default() });
        send(&mut there, 0..count);
        let mut seen = numbers(&mut here);
        for _ in 0..1000 {
            let Some(due) = here.wake_at() else { break };
            clock.advance(due.saturating_duration_since(clock.now()));
            seen.extend(numbers(&mut here));
        }
        let duplicated = here.counters().iter()
            .find(|(name, _)| *name == "fault_rcvd_duplicated").unwrap().1;
        prop_assert_eq!(seen.len() as u64, u64::from(count) + duplicated);
        seen.sort_unstable();
        seen.dedup();
        prop_assert_eq!(seen, (0..count).collect::<Vec<_>>());
    }
}

#[test]
fn a_rule_of_a_rail_or_a_time_leaves_other_packets_alone() {
    let config = script(&["drop every packet on rail 1 from 2s to 4s"]);
    for (rail, lost) in [(Some(1), true), (Some(0), false), (None, false)] {
        let (faulty, mut plain, clock) = faulty(config.clone());
        let mut faulty = faulty.on_rail(rail);
        for number in 0..5 {
            send(&mut faulty, [number]);
            clock.advance(Duration::from_millis(1100));
        }
        // Packets 2 and 3 are sent 2.2 and 3.3 seconds after the begin.
        let expected = if lost { vec![0, 1, 4] } else { vec![0, 1, 2, 3, 4] };
        assert_eq!(numbers(&mut plain), expected, "rail {rail:?}");
    }
}

#[test]
fn a_link_that_is_down_loses_what_its_own_end_sends() {
    let rules = ["rail 1 of rank 0 down from 2s to 4s", "rail 1 down at packet 2 for 1s"];
    let links = |place: usize| vec![LinkRule::parse(rules[place]).unwrap()];
    for (links, rank, rail, expected) in [
        (links(0), 0, 1, vec![0, 1, 4]),
        (links(0), 0, 0, vec![0, 1, 2, 3, 4]),
        (links(0), 1, 1, vec![0, 1, 2, 3, 4]),
        (links(1), 0, 1, vec![0, 2, 3, 4]),
        (links(1), 1, 1, vec![0, 2, 3, 4]),
        (links(1), 1, 0, vec![0, 1, 2, 3, 4]),
    ] {
        let shown = format!("{}, rank {rank}, rail {rail}", links[0]);
        let config = FaultConfig { links, rank: Some(rank), ..FaultConfig::default() };
        let (faulty, mut plain, clock) = faulty(config);
        let mut faulty = faulty.on_rail(Some(rail));
        for number in 0..5 {
            send(&mut faulty, [number]);
            clock.advance(Duration::from_millis(1100));
        }
        assert_eq!(numbers(&mut plain), expected, "{shown}");
    }
}

#[test]
fn a_packet_that_a_link_loses_is_told_by_the_number_of_its_rule() {
    let links = vec![LinkRule::parse("rail 0 down at packet 1").unwrap()];
    let config = FaultConfig { links, ..script(&["mark packet 9"]) };
    let faults = FaultScript::new(&config);
    let (here, mut there) = memory_pair(&MemoryConfig::default());
    let mut device = FaultInjector::with_script(here, &config, faults.clone()).on_rail(Some(0));
    send(&mut device, 0..3);
    assert!(receive(&mut there).is_empty());
    let events: Vec<_> = faults.events().iter().map(|event| (event.rule, event.number)).collect();
    assert_eq!(events, [(1, 1), (1, 2), (1, 3)]);
    assert!(device.counters().contains(&("fault_sent_dropped", 3)));
}

#[test]
fn a_log_has_each_change_of_a_link_and_keeps_few() {
    let path = std::env::temp_dir().join(format!("roce-links-{}", std::process::id()));
    std::fs::File::create_new(&path).unwrap();
    let mut log = FaultLog::open(Some(&path), None);
    for number in 1..=40 {
        log.note_of(FaultEventOf::LinkDown, 0, number, || "rail 1 is down".to_owned());
        log.note_of(FaultEventOf::Carrier, 0, number, || "sees it".to_owned());
    }
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let events: Vec<_> = text.lines().map(|line| FaultEvent::parse(line).unwrap()).collect();
    let count = |kind| events.iter().filter(|event| event.kind == kind).count();
    assert_eq!((count(FaultEventOf::LinkDown), count(FaultEventOf::Carrier)), (40, 17));
    assert_eq!(log.events().len(), 2 * 17);
}
