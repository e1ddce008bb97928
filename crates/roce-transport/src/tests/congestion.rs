//! Marked packets, the notifications that they draw, and what senders make of them.

use core::time::Duration;

use roce_wire::{Bth, opcode};

use super::*;
use crate::congestion::{CongestionAlgorithm, CongestionConfig};

const CE: u8 = 0b11;
const INTERVAL: Duration = Duration::from_micros(50);

fn configured(congestion: CongestionConfig) -> EndpointConfig {
    EndpointConfig { congestion, ..EndpointConfig::default() }
}

fn count(side: &Side, name: &str) -> u64 {
    side.endpoint.counters().iter().find(|it| it.0 == name).unwrap().1
}

/// A WRITE of one packet from side 0 that arrives at side 1 at `now`, marked.
fn marked_write(sides: &mut [Side; 2], now: Instant) {
    sides[0].endpoint.post_send(now, QPN, write(8)).unwrap();
    let from = sides[0].address;
    for packet in sides[0].sends_at(now, 64) {
        sides[1].takes_at(now, from, &packet, CE);
    }
}

fn write(len: u32) -> SendWr {
    SendWr::new(1, SendOperation::write(REMOTE), [piece(0, len)])
}

fn cnp() -> Headers {
    Headers::new(Bth { becn: true, ..Bth::new(opcode::CNP, QPN, Psn::ZERO) })
}

#[test]
fn a_marked_packet_draws_a_cnp_of_sixteen_zeros_and_an_ack_with_becn() {
    let mut sides = pair();
    marked_write(&mut sides, NOW);
    let mut buf = vec![0; 65_536];
    let limits = TransmitLimits { max_packets: 64 };
    let Side { endpoint, memory, .. } = &mut sides[1];
    let first = endpoint.poll_transmit(NOW, memory, limits, &mut buf).unwrap();
    assert_eq!(first.traffic_class, Some(48 << 2), "DSCP 48, and not ECN-capable");
    assert_eq!((first.len, first.packets), (32, 1));
    let expected = [0x81, 0, 0xff, 0xff, 0x40, 0, 0, 1, 0, 0, 0, 0];
    assert_eq!(buf[..12], expected, "BECN, and PSN 0");
    assert_eq!(buf[12..28], [0; 16]);
    let acks = sides[1].sends(64);
    let bth = headers_of(&acks[0]).bth;
    assert_eq!((acks.len(), bth.opcode, bth.becn), (1, opcode::RC_ACKNOWLEDGE, true));
    assert_eq!(count(&sides[1], "np_cnp_sent"), 1);
    assert_eq!(count(&sides[1], "np_ecn_marked_roce_packets"), 1);
}

/// Packets with a traffic class of their own leave through another transmit queue.
struct ByClass;

impl PacketSealer for ByClass {
    fn begin(&mut self, _: Qpn, _: Qpn, _: PathHandle) {}
    fn seal(&mut self, _: &mut [u8], _: Option<roce_wire::PayloadCrc>) {}
    fn transmit_queue(&self, _: Qpn, _: PathHandle, class: Option<u8>) -> Option<TransmitQueue> {
        Some(TransmitQueue(class.is_some().into()))
    }
}

#[test]
fn a_cnp_leaves_while_the_class_of_its_path_is_stopped() {
    let mut sides = pair();
    marked_write(&mut sides, NOW);
    let Side { endpoint, memory, .. } = &mut sides[1];
    endpoint.suspend_transmit(TransmitQueue(0));
    let mut buf = vec![0; 65_536];
    let limits = TransmitLimits { max_packets: 64 };
    let mut next = || {
        let sent = endpoint.poll_transmit_sealed(NOW, memory, limits, &mut buf, &mut ByClass);
        sent.map(|sent| sent.traffic_class)
    };
    assert_eq!([next(), next()], [Some(Some(48 << 2)), None]);
    assert_eq!(count(&sides[1], "np_cnp_sent"), 1);
}

#[test]
fn an_ack_has_becn_only_if_a_marked_packet_has_arrived_since_the_last() {
    let mut sides = pair();
    marked_write(&mut sides, NOW);
    sides[1].sends(64);
    sides[0].posts(write(8));
    let from = sides[0].address;
    for packet in sides[0].sends(64) {
        sides[1].takes(from, &packet);
    }
    let acks = sides[1].sends(64);
    assert!(!acks.is_empty() && acks.iter().all(|it| !headers_of(it).bth.becn));
}

//= test cc-cnp-interval
#[test]
fn at_most_one_cnp_leaves_in_an_interval() {
    let mut sides = pair();
    let mut cnps = 0;
    for micros in 0..500 {
        let now = NOW + Duration::from_micros(micros);
        marked_write(&mut sides, now);
        let (acks, to) = (sides[1].sends_at(now, 64), sides[1].address);
        let is_cnp = |it: &&Vec<u8>| headers_of(it).bth.opcode == opcode::CNP;
        cnps += acks.iter().filter(is_cnp).count();
        acks.iter().for_each(|it| sides[0].takes_at(now, to, it, 0));
    }
    assert_eq!(cnps as u128, 500 / INTERVAL.as_micros());
    assert_eq!(count(&sides[1], "np_ecn_marked_roce_packets"), 500);
}

#[test]
fn every_packet_that_arrives_is_counted_as_received_a_cnp_too() {
    for algorithm in [CongestionAlgorithm::Ecn, CongestionAlgorithm::Loss] {
        let congestion = CongestionConfig { algorithm, ..CongestionConfig::default() };
        let mut sides = pair_of(&configured(congestion), |_| ());
        marked_write(&mut sides, NOW);
        let (answers, to) = (sides[1].sends(64), sides[1].address);
        answers.iter().for_each(|it| sides[0].takes(to, it));
        assert_eq!(count(&sides[1], "np_cnp_sent"), 1);
        for (sender, receiver) in [(0, 1), (1, 0)] {
            let sent = count(&sides[sender], "sent_pkts");
            assert_eq!(count(&sides[receiver], "rcvd_pkts"), sent, "{algorithm:?}");
        }
    }
}

#[test]
fn a_notification_point_that_is_off_counts_marks_and_answers_none() {
    let congestion = CongestionConfig { np_enable: false, ..CongestionConfig::default() };
    let mut sides = pair_of(&configured(congestion), |_| ());
    marked_write(&mut sides, NOW);
    let sent = sides[1].sends(64);
    assert_eq!(sent.len(), 1);
    let bth = headers_of(&sent[0]).bth;
    assert_eq!((bth.opcode, bth.becn), (opcode::RC_ACKNOWLEDGE, false));
    assert_eq!(count(&sides[1], "np_ecn_marked_roce_packets"), 1);
}

#[test]
fn a_mark_on_a_packet_of_another_host_draws_nothing() {
    let mut sides = pair();
    sides[0].posts(write(8));
    let stranger = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 77));
    for packet in sides[0].sends(64) {
        sides[1].takes_at(NOW, stranger, &packet, CE);
    }
    assert_eq!(sides[1].sends(64).len(), 0);
    assert_eq!(count(&sides[1], "np_ecn_marked_roce_packets"), 0);
}

#[test]
fn a_driver_that_sends_nothing_gathers_a_bounded_number_of_cnps() {
    let congestion = CongestionConfig { np_min_time_between_cnps: 0, ..Default::default() };
    let mut sides = pair_of(&configured(congestion), |_| ());
    sides[0].posts(write(8));
    let (from, packet) = (sides[0].address, sides[0].sends(64).remove(0));
    for _ in 0..10_000 {
        sides[1].takes_at(NOW, from, &packet, CE);
    }
    let sent = sides[1].sends(64);
    let cnps = sent.iter().filter(|it| headers_of(it).bth.opcode == opcode::CNP).count();
    assert_eq!(cnps, 1024);
}

#[test]
fn a_cnp_is_handled_by_its_queue_pair_and_ignored_where_nothing_reacts() {
    for (algorithm, handled) in [(CongestionAlgorithm::Ecn, 1), (CongestionAlgorithm::Loss, 0)] {
        let congestion = CongestionConfig { algorithm, ..CongestionConfig::default() };
        let [mut side, peer] = pair_of(&configured(congestion), |_| ());
        side.takes_made(peer.address, &cnp(), &[]);
        assert_eq!(count(&side, "rp_cnp_handled"), handled);
        assert_eq!(count(&side, "rp_cnp_ignored"), 1 - handled);
        let stranger = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 77));
        side.takes_made(stranger, &cnp(), &[]);
        assert_eq!(count(&side, "rp_cnp_handled"), handled);
        assert_eq!(count(&side, "wrong_source"), 1);
        assert_eq!(side.sends(64).len(), 0);
    }
}

#[test]
fn a_flood_of_cnps_for_unknown_queue_pairs_does_no_harm() {
    let [mut side, peer] = pair();
    for number in 2..2_000 {
        let mut headers = cnp();
        headers.bth.dest_qp = Qpn::new(number).unwrap();
        side.takes_made(peer.address, &headers, &[]);
    }
    assert_eq!(count(&side, "unknown_qp"), 1_998);
    assert_eq!(side.sends(64).len(), 0);
    let mut sides = [side, peer];
    sides[0].posts(write(8));
    shuttle(&mut sides);
    assert_eq!(sides[0].completed(), [(1, CompletionStatus::Success)]);
}

/// What [`run`] saw of side 0.
#[derive(Debug, PartialEq)]
struct Run {
    end: Instant,
    sent: usize,
    /// Most packets that left at once.
    largest_burst: usize,
}

/// Carries packets, those of side 0 with this traffic class, until none is left and no request
/// waits.
fn run(sides: &mut [Side; 2], start: Instant, traffic_class: u8) -> Run {
    let mut run = Run { end: start, sent: 0, largest_burst: 0 };
    for _round in 0..100_000 {
        let mut carried = 0;
        for from in [0, 1] {
            let [from_side, to] = sides.get_disjoint_mut([from, 1 - from]).unwrap();
            let class = if from == 0 { traffic_class } else { 0 };
            let packets = from_side.sends_at(run.end, 64);
            carried += packets.len();
            if from == 0 {
                run.sent += packets.len();
                run.largest_burst = run.largest_burst.max(packets.len());
            }
            for packet in packets {
                to.takes_at(run.end, from_side.address, &packet, class);
            }
        }
        if carried > 0 {
            continue;
        }
        if !sides[0].endpoint.has_outstanding(QPN) && !sides[0].endpoint.has_unsent(QPN) {
            return run;
        }
        run.end = run.end.max(sides[0].endpoint.poll_timeout().expect("a timer runs"));
        sides[0].endpoint.handle_timeout(run.end);
    }
    panic!("they never come to an end");
}

/// Posts 310 packets of WRITEs to side 0 and carries them.
fn run_writes(sides: &mut [Side; 2], start: Instant, traffic_class: u8) -> Run {
    for _ in 0..10 {
        sides[0].endpoint.post_send(start, QPN, write(31 * 256)).unwrap();
    }
    run(sides, start, traffic_class)
}

#[test]
fn a_sender_under_dcqcn_keeps_its_rate_by_timers() {
    let dcqcn = crate::congestion::DcqcnParameters {
        rp_time_reset: 10_000_000,
        rp_byte_reset: 0,
        ..crate::congestion::DcqcnParameters::PAPER
    };
    let algorithm = CongestionAlgorithm::Dcqcn;
    let congestion = CongestionConfig { algorithm, dcqcn, ..CongestionConfig::default() };
    let mut sides = pair_of(&configured(congestion), |_| ());
    let peer = sides[1].address;
    for _ in 0..100 {
        sides[0].takes_made(peer, &cnp(), &[]);
    }
    sides[0].posts(write(31 * 256));
    let Run { end, sent, .. } = run(&mut sides, NOW, 0);
    assert_eq!((sent, sides[0].completed()), (31, vec![(1, CompletionStatus::Success)]));
    // The smallest rate is 1 Mbit/s: 2.048 ms for each packet behind the first.
    let millis = end.saturating_since(NOW).as_secs_f64() * 1e3;
    assert!((60.0..62.5).contains(&millis), "{millis} ms");
}

#[test]
fn a_change_of_congestion_control_is_for_senders_that_nothing_limits() {
    let algorithm = |algorithm| CongestionConfig {
        algorithm,
        line_rate: 1_000_000_000,
        ..CongestionConfig::default()
    };
    let [mut side, peer] = pair();
    side.endpoint.set_congestion(algorithm(CongestionAlgorithm::Dcqcn));
    side.takes_made(peer.address, &cnp(), &[]);
    assert_eq!(side.endpoint.rate_limit(QPN), Some(500_000_000));
    // Under the old one it stays, until the rate is full again.
    side.endpoint.set_congestion(algorithm(CongestionAlgorithm::Loss));
    assert_eq!(side.endpoint.rate_limit(QPN), Some(500_000_000));
    side.posts(write(8));
    let later = NOW + Duration::from_secs(10);
    let mut sides = [side, peer];
    run(&mut sides, later, 0);
    assert_eq!(sides[0].endpoint.rate_limit(QPN), None);
    let [side, peer] = &mut sides;
    side.takes_made(peer.address, &cnp(), &[]);
    assert_eq!((side.endpoint.rate_limit(QPN), count(side, "rp_cnp_ignored")), (None, 1));
}

#[test]
fn time_before_the_first_cnp_is_no_credit_for_packets_after_it() {
    let dcqcn = crate::congestion::DcqcnParameters {
        rp_time_reset: 10_000_000,
        rp_byte_reset: 0,
        ..crate::congestion::DcqcnParameters::PAPER
    };
    let congestion = CongestionConfig {
        algorithm: CongestionAlgorithm::Dcqcn,
        dcqcn,
        line_rate: 1_000_000_000,
        ..CongestionConfig::default()
    };
    let mut sides = pair_of(&configured(congestion), |_| ());
    let start = NOW + Duration::from_millis(10);
    marked_write(&mut sides, start);
    let (answers, peer) = (sides[1].sends_at(start, 64), sides[1].address);
    answers.iter().for_each(|it| sides[0].takes_at(start, peer, it, 0));
    assert_eq!(sides[0].endpoint.rate_limit(QPN), Some(500_000_000));
    let Run { end, sent, .. } = run_writes(&mut sides, start, 0);
    // 310 packets of 256 bytes at 500 Mbit/s, but for the first train of 100 µs.
    let micros = end.saturating_since(start).as_secs_f64() * 1e6;
    assert!((1160.0..1270.0).contains(&micros), "{sent} packets in {micros} µs");
}

#[test]
fn marks_shrink_the_window_and_it_recovers_without_them() {
    let mut sides = pair();
    let before = run_writes(&mut sides, NOW, 0b10);
    let mut last = Run { largest_burst: before.largest_burst, ..before };
    for _ in 0..60 {
        last = run_writes(&mut sides, last.end, CE);
    }
    assert!(last.largest_burst <= 2, "on a path that marks all packets: {last:?}");
    assert_eq!(last.sent, 310, "marks lose nothing");
    for _ in 0..200 {
        last = run_writes(&mut sides, last.end, 0b10);
    }
    assert!(last.largest_burst >= before.largest_burst, "{last:?}, before {before:?}");
}

#[test]
fn marked_responses_to_a_read_shrink_what_is_requested_at_once() {
    let mut sides = pair();
    let read = || SendWr::new(1, SendOperation::read(REMOTE), [piece(0, 20 * 256)]).signaled();
    let asked = |packets: &[Vec<u8>]| packets.iter().filter(|it| it[0] == 0x0c).count();
    sides[0].posts(read());
    let mut now = NOW;
    let mut requests = 0;
    for round in 0..2_000 {
        now += Duration::from_micros(100);
        sides[0].endpoint.handle_timeout(now);
        let (from, packets) = (sides[0].address, sides[0].sends_at(now, 64));
        requests += asked(&packets);
        packets.iter().for_each(|it| sides[1].takes_at(now, from, it, 0));
        let (to, responses) = (sides[1].address, sides[1].sends_at(now, 64));
        responses.iter().for_each(|it| sides[0].takes_at(now, to, it, CE));
        if sides[0].completed().is_empty() {
            continue;
        }
        if requests >= 10 {
            assert!(count(&sides[0], "np_cnp_sent") > 0, "the peer hears of it");
            return;
        }
        requests = 0;
        assert!(round < 1_900, "READs are still requested whole");
        sides[0].endpoint.post_send(now, QPN, read()).unwrap();
    }
    panic!("READs are still requested whole");
}

#[test]
fn without_marks_packets_and_times_are_those_of_a_sender_without_reaction() {
    let runs = [CongestionAlgorithm::Loss, CongestionAlgorithm::Ecn, CongestionAlgorithm::Dcqcn];
    let [loss, ecn, dcqcn] = runs.map(|algorithm| {
        let congestion = CongestionConfig { algorithm, ..CongestionConfig::default() };
        let mut sides = pair_of(&configured(congestion), |_| ());
        run_writes(&mut sides, NOW, 0b10)
    });
    assert_eq!(loss, ecn);
    assert_eq!(loss, dcqcn);
}
