//! Packets that arrive before a missing one: kept within bounds, and as if they had come in order.

use std::time::Duration;

use proptest::prelude::*;
use roce_fabric::{Fate, Impairment, ImpairmentRates, LinkConfig};
use roce_simnet::{Region, Rights};
use roce_transport::{EndpointConfig, QpState, WindowConfig};
use roce_wire::{NakCode, PathMtu, Psn, Reth, Syndrome, opcode};

use crate::common::connection::{DEFAULT, End, FIRST_PSN, Options, PD, connect, timeout};
use crate::common::exchange::{Exchange, Kind, sge};
use crate::common::forge;
use crate::common::repeat::for_each_case;
use crate::common::world::{World, WorldConfig, test_config};

fn expected() -> Psn {
    Psn::new(FIRST_PSN).expect("24 bits")
}

/// A connection to node 1, which has posted ten receives of 8 bytes.
fn receiver(config: EndpointConfig) -> (World, [End; 2], Region) {
    let mut world = World::new(2, WorldConfig { endpoint: config, ..test_config() });
    world.keep_timeline(true);
    let ends = connect(&mut world, [0, 1], DEFAULT);
    let region = world.hosts[1].memory.register_filled(PD, 80, Rights::ALL, 0xaa);
    for i in 0..10 {
        ends[1].post_recv(&mut world, i, &[sge(region, 8 * i as usize, 8)]);
    }
    (world, ends, region)
}

/// A SEND of 8 bytes, which `ahead` others precede.
fn send(to: End, ahead: u32) -> Vec<u8> {
    forge::send_only(to.qpn, expected().advanced_by(ahead), &[ahead as u8; 8])
}

fn responses(world: &World) -> Vec<(Psn, Syndrome)> {
    let sent = world.sent(1).into_iter().map(|it| it.headers());
    sent.map(|it| (it.bth.psn, it.aeth.expect("a response").syndrome)).collect()
}

fn received(world: &World, end: End) -> Vec<u64> {
    end.received(world).iter().map(|it| it.wr_id).collect()
}

//= test rc-psn-order
#[test]
fn nothing_behind_a_gap_is_visible_before_it_closes_and_then_all_is_in_order() {
    let (mut world, ends, region) = receiver(EndpointConfig::default());
    let untouched = world.hosts[1].memory.bytes(region).to_vec();
    for ahead in [3, 1, 2, 5] {
        world.forge(0, 1, &send(ends[1], ahead));
    }
    assert!(received(&world, ends[1]).is_empty());
    assert_eq!(world.hosts[1].memory.bytes(region), untouched);
    assert_eq!(responses(&world), [(expected(), forge::nak(NakCode::PsnSequence))]);
    world.forge(0, 1, &send(ends[1], 0));
    assert_eq!(received(&world, ends[1]), [0, 1, 2, 3]);
    let bytes: Vec<_> = world.hosts[1].memory.bytes(region).chunks(8).map(|it| it[0]).collect();
    assert_eq!(bytes[..4], [0, 1, 2, 3], "each in the receive of its turn");
    let acks: Vec<_> = responses(&world).into_iter().skip(1).collect();
    assert_eq!(acks.len(), 1, "one ACK for all of them: {acks:?}");
    assert_eq!(acks[0].0, expected().advanced_by(3));
    assert_eq!(ends[1].counter(&world, "reorder_kept"), 4);
    world.forge(0, 1, &send(ends[1], 4));
    assert_eq!(received(&world, ends[1]), [0, 1, 2, 3, 4, 5]);
    assert_eq!(world.hosts[1].endpoint.reorder_bytes(), 0);
}

#[test]
fn packets_that_a_gap_held_back_are_acknowledged_at_once_though_none_requests_it() {
    let mut world = World::pair();
    world.keep_timeline(true);
    let options = Options { path_mtu: PathMtu::B256, ..DEFAULT };
    let ends = connect(&mut world, [0, 1], options);
    let region = world.hosts[1].memory.register_filled(PD, 1024, Rights::ALL, 0);
    // The first packets of a WRITE of four, which have no AckReq.
    let packet = |ahead: u32| {
        let code = if ahead == 0 { opcode::RC_WRITE_FIRST } else { opcode::RC_WRITE_MIDDLE };
        let mut headers = forge::headers(code, ends[1].qpn, expected().advanced_by(ahead));
        let reth = Reth { addr: region.addr, rkey: region.key, len: 1024 };
        headers.reth = headers.reth.map(|_| reth);
        forge::packet(&headers, &[7; 256])
    };
    for ahead in [1, 2, 0] {
        world.forge(0, 1, &packet(ahead));
    }
    let newest = responses(&world).last().map(|(psn, _)| *psn);
    assert_eq!(newest, Some(expected().advanced_by(2)));
    assert_eq!(responses(&world).len(), 2, "the NAK, and one ACK for all three");
}

#[test]
fn a_kept_packet_that_comes_again_is_dropped_and_the_first_one_counts() {
    let (mut world, ends, region) = receiver(EndpointConfig::default());
    world.forge(0, 1, &send(ends[1], 1));
    let held = world.hosts[1].endpoint.reorder_bytes();
    for _ in 0..5 {
        world.forge(0, 1, &send(ends[1], 1));
        let other = forge::send_only(ends[1].qpn, expected().advanced_by(1), &[99; 8]);
        world.forge(0, 1, &other);
    }
    assert_eq!(world.hosts[1].endpoint.reorder_bytes(), held);
    assert_eq!(ends[1].counter(&world, "reorder_duplicate"), 5);
    assert_eq!(ends[1].counter(&world, "reorder_differs"), 5, "one of the two is not the peer's");
    assert_eq!(ends[1].counter(&world, "out_of_seq_request"), 11);
    world.forge(0, 1, &send(ends[1], 0));
    assert_eq!(world.hosts[1].memory.bytes(region)[8], 1);
}

#[test]
fn a_kept_packet_that_cannot_be_executed_fails_where_it_would_have_in_order() {
    let (mut world, ends, _) = receiver(EndpointConfig::default());
    let bad = forge::packet(
        &forge::headers(opcode::RC_SEND_MIDDLE, ends[1].qpn, expected().advanced_by(2)),
        &[0; 256],
    );
    world.forge(0, 1, &bad);
    world.forge(0, 1, &send(ends[1], 3));
    world.forge(0, 1, &send(ends[1], 1));
    assert_eq!(ends[1].state(&world), QpState::ReadyToSend, "not before its turn");
    world.forge(0, 1, &send(ends[1], 0));
    assert_eq!(received(&world, ends[1])[..2], [0, 1]);
    assert_eq!(ends[1].state(&world), QpState::Error);
    let last = responses(&world).last().copied();
    assert_eq!(last, Some((expected().advanced_by(2), forge::nak(NakCode::InvalidRequest))));
    assert_eq!(world.hosts[1].endpoint.reorder_bytes(), 0);
}

#[test]
fn a_kept_packet_without_a_receive_is_requested_again_and_those_behind_it_stay() {
    let (mut world, ends, region) = receiver(EndpointConfig::default());
    for ahead in 1..13 {
        world.forge(0, 1, &send(ends[1], ahead));
    }
    world.forge(0, 1, &send(ends[1], 0));
    assert_eq!(received(&world, ends[1]).len(), 10);
    let last = responses(&world).last().copied();
    assert_eq!(last, Some((expected().advanced_by(10), forge::rnr(1))));
    for i in 10..13 {
        ends[1].post_recv(&mut world, i, &[sge(region, 0, 8)]);
    }
    world.forge(0, 1, &send(ends[1], 10));
    assert_eq!(received(&world, ends[1]).len(), 13);
}

#[test]
fn with_a_limit_of_zero_nothing_is_kept() {
    let config = EndpointConfig { max_reorder_bytes: 0, ..EndpointConfig::default() };
    let (mut world, ends, _) = receiver(config);
    world.forge(0, 1, &send(ends[1], 1));
    world.forge(0, 1, &send(ends[1], 0));
    assert_eq!(received(&world, ends[1]), [0]);
    assert_eq!(ends[1].counter(&world, "out_of_seq_request"), 1);
    assert_eq!(ends[1].counter(&world, "reorder_kept"), 0);
}

#[test]
fn peers_that_send_all_but_the_first_packet_fill_no_more_than_the_limit_and_leave_some() {
    const LIMIT: usize = 64 << 10;
    let config = EndpointConfig { max_reorder_bytes: LIMIT, ..EndpointConfig::default() };
    let mut world = World::new(2, WorldConfig { endpoint: config, ..test_config() });
    let ends: Vec<_> = (0..5).map(|_| connect(&mut world, [0, 1], DEFAULT)).collect();
    let held = |world: &World| world.hosts[1].endpoint.reorder_bytes();
    let mut before = 0;
    for (i, [_, to]) in ends.iter().enumerate() {
        for ahead in 1..1000 {
            world.forge(0, 1, &send(*to, ahead));
        }
        let grown = held(&world) - before;
        assert!(i > 1 || grown > 500, "{grown} more, {} in all", held(&world));
        assert!(grown <= LIMIT - held(&world), "no more than what is left for others");
        assert!(held(&world) <= LIMIT / 4 * 3, "the rest is for other peers");
        before = held(&world);
    }
    let refused = world.counter(1, "out_of_seq_request") - world.counter(1, "reorder_kept");
    assert_eq!(world.counter(1, "reorder_full"), refused);
    assert!(refused > 0);
    // Whatever ends the queue pairs frees what they hold.
    ends[0][1].move_to(&mut world, QpState::Error);
    ends[1][1].move_to(&mut world, QpState::Reset);
    for [_, to] in &ends[2..] {
        world.with(1, |node, _| node.endpoint.destroy_qp(to.qpn));
    }
    assert_eq!(held(&world), 0);
}

/// 10 Gb/s, 20 µs there and back.
const FAST: LinkConfig = LinkConfig {
    latency: Duration::from_micros(10),
    bits_per_sec: Some(10_000_000_000),
    queue_frames: usize::MAX,
};

/// A window of 250 packets that losses do not shrink.
fn fixed_window() -> EndpointConfig {
    let mut config = EndpointConfig::default();
    config.window =
        WindowConfig { initial_packets: 250, min_packets: 250, max_packets: 250, ..config.window };
    config.peer_window.initial_frames = 1000;
    config.peer_window.max_frames = 1000;
    config
}

#[test]
fn once_it_is_known_that_the_peer_keeps_packets_a_lost_one_is_sent_again_alone() {
    let config = WorldConfig { link: FAST, endpoint: fixed_window(), ..test_config() };
    let mut world = World::new(2, config);
    let options = Options { path_mtu: PathMtu::B1024, ack_timeout: timeout(14), ..DEFAULT };
    let ends = connect(&mut world, [0, 1], options);
    let lose = |at: usize| {
        Impairment::scripted((0..=at).map(|i| if i == at { Fate::Drop } else { Fate::Pass }))
    };
    for (round, resent) in [4, 8, 9, 10].into_iter().enumerate() {
        world.set_impairment(0, lose(50));
        let exchange = Exchange::post(&mut world, ends, Kind::Write, 400 << 10, 1);
        world.run_until(|world| exchange.is_done(world));
        exchange.check(&world);
        assert_eq!(ends[0].counter(&world, "resent_pkts"), resent, "{round}\n{}", world.report());
    }
    assert_eq!(ends[0].counter(&world, "selective_repeat"), 2);
}

#[test]
fn a_peer_that_keeps_nothing_gets_everything_again() {
    let endpoint = EndpointConfig { max_reorder_bytes: 0, ..fixed_window() };
    let mut world = World::new(2, WorldConfig { link: FAST, endpoint, ..test_config() });
    let options = Options { path_mtu: PathMtu::B1024, ack_timeout: timeout(14), ..DEFAULT };
    let ends = connect(&mut world, [0, 1], options);
    let rates = ImpairmentRates { drop: 0.01, ..ImpairmentRates::default() };
    world.set_impairment(0, Impairment::random(1, rates));
    let exchange = Exchange::post(&mut world, ends, Kind::Write, 4 << 20, 1);
    world.run_until(|world| exchange.is_done(world));
    exchange.check(&world);
    assert_eq!(ends[0].counter(&world, "selective_repeat"), 0, "{}", world.report());
}

/// Writes 64 MiB over a link of 10 Gb/s whose bandwidth-delay product is 250 packets. Returns the share
/// of the link that payload and headers had, and the share of packets sent again.
fn write_over(link: LinkConfig, drop: f64) -> (f64, f64) {
    let mut endpoint = EndpointConfig::default();
    endpoint.peer_window.initial_frames = 1000;
    endpoint.peer_window.max_frames = 1000;
    let link = LinkConfig { latency: Duration::from_micros(110), ..link };
    let mut world = World::new(2, WorldConfig { link, endpoint, ..test_config() });
    let agreed = Options { gap_reports: true, ..DEFAULT };
    let options = Options { path_mtu: PathMtu::B1024, ack_timeout: timeout(14), ..agreed };
    let ends = connect(&mut world, [0, 1], options);
    let rates = ImpairmentRates { drop, ..ImpairmentRates::default() };
    world.set_impairment(0, Impairment::random(1, rates));
    let began = world.now();
    let exchange = Exchange::post(&mut world, ends, Kind::Write, 4 << 20, 16);
    world.run_until(|world| exchange.is_done(world));
    let took = world.now().saturating_since(began).as_secs_f64();
    exchange.check(&world);
    let packets = f64::from(64 << 10);
    let share = packets * 1082.0 * 8.0 / 10e9 / took;
    (share, ends[0].counter(&world, "resent_pkts") as f64 / packets)
}

#[test]
fn a_percent_of_single_losses_costs_a_tenth_of_the_link_at_most() {
    let (share, resent) = write_over(FAST, 0.01);
    println!("{share:.3} of the link, {resent:.4} sent again");
    assert!(share > 0.9, "{share:.3} of the link");
    assert!(resent < 0.015, "{resent:.4} sent again");
}

#[test]
fn a_queue_that_overflows_still_limits_the_window() {
    for (queue_frames, least) in [(30, 0.2), (250, 0.7)] {
        let (share, resent) = write_over(LinkConfig { queue_frames, ..FAST }, 0.0);
        println!("{queue_frames} frames: {share:.3} of the link, {resent:.4} sent again");
        assert!(share > least, "{queue_frames} frames: {share:.3} of the link");
        assert!(resent < 0.08, "{queue_frames} frames: {resent:.4} sent again");
    }
}

/// Messages over a path that delays each packet by up to as long as `window` packets take.
#[derive(Clone, Copy, Debug)]
struct Reordered {
    seed: u64,
    kind: Kind,
    /// Share of the packets that are delayed, in percent.
    delayed: u32,
    /// In packets of the path MTU.
    window: u32,
    loss: u32,
}

fn reordered(kinds: &'static [Kind]) -> impl Strategy<Value = Reordered> {
    let kind = prop::sample::select(kinds);
    (any::<u64>(), kind, 1..=100u32, 1..=1000u32, 0..3u32).prop_map(
        |(seed, kind, delayed, window, loss)| Reordered { seed, kind, delayed, window, loss },
    )
}

/// A connection over such a path.
fn reordering_world(case: Reordered) -> (World, [End; 2]) {
    let config = WorldConfig { link: FAST, endpoint: fixed_window(), ..test_config() };
    let mut world = World::new(2, config);
    let options = Options { ack_timeout: timeout(14), gap_reports: true, ..DEFAULT };
    let ends = connect(&mut world, [0, 1], options);
    let loss = f64::from(case.loss) / 1000.0;
    let rates = ImpairmentRates {
        delay: f64::from(case.delayed) / 100.0 * (1.0 - loss),
        drop: loss,
        // 330 bytes at 10 Gb/s.
        max_delay: Duration::from_nanos(264) * case.window,
        ..ImpairmentRates::default()
    };
    world.set_impairment(0, Impairment::random(case.seed, rates));
    world.set_impairment(1, Impairment::random(!case.seed, rates));
    (world, ends)
}

/// Sends 6000 packets; returns the packets that took.
fn send_reordered(case: Reordered) -> (u64, World) {
    let (mut world, ends) = reordering_world(case);
    let exchange = Exchange::post(&mut world, ends, case.kind, 60 * 256, 100);
    world.run_until(|world| exchange.is_done(world));
    world.settle();
    exchange.check(&world);
    (world.counter(0, "sent_pkts").max(world.counter(1, "sent_pkts")), world)
}

#[test]
fn reordering_within_a_thousand_packets_delivers_once_in_order_and_costs_a_fifth_at_most() {
    for_each_case(100, reordered(&[Kind::Send, Kind::Write, Kind::WriteImmediate]), |case| {
        let (packets, world) = send_reordered(case);
        assert!(packets <= 7200, "{packets} packets\n{}", world.report());
    });
}

#[test]
fn reordered_read_responses_arrive_once_in_order_and_cost_a_fifth_at_most() {
    for_each_case(100, reordered(&[Kind::Read]), |case| {
        let (packets, world) = send_reordered(case);
        assert!(packets <= 7200, "{packets} packets\n{}", world.report());
    });
}

#[test]
fn reordered_atomics_are_executed_once_in_order_and_cost_a_fifth_at_most() {
    for_each_case(50, reordered(&[Kind::FetchAdd, Kind::CompareSwap]), |case| {
        let (mut world, ends) = reordering_world(case);
        for _ in 0..5 {
            let exchange = Exchange::post(&mut world, ends, case.kind, 8, 200);
            world.run_until(|world| exchange.is_done(world));
            world.settle();
            exchange.check(&world);
        }
        let packets = world.counter(0, "sent_pkts");
        assert!(packets <= 1200, "{packets} packets\n{}", world.report());
    });
}

/// Node 0 has sent a READ of `packets` packets of 256 bytes to which only forged responses come.
fn reading(packets: usize, config: EndpointConfig) -> (World, [End; 2], Region) {
    let mut world = World::new(2, WorldConfig { endpoint: config, ..test_config() });
    world.keep_timeline(true);
    let options = Options { ack_timeout: timeout(20), ..DEFAULT };
    let ends = connect(&mut world, [0, 1], options);
    world.set_impairment(0, Impairment::scripted(vec![Fate::Drop; 1000]));
    let exchange = Exchange::post(&mut world, ends, Kind::Read, packets * 256, 1);
    (world, ends, exchange.local)
}

/// Response number `ahead` of `packets`, of bytes with this number.
fn read_response(to: End, ahead: u32, packets: u32) -> Vec<u8> {
    let code = match ahead {
        0 => opcode::RC_READ_RESPONSE_FIRST,
        _ if ahead + 1 == packets => opcode::RC_READ_RESPONSE_LAST,
        _ => opcode::RC_READ_RESPONSE_MIDDLE,
    };
    forge::response(code, to.qpn, expected().advanced_by(ahead), forge::ACK, &[ahead as u8; 256])
}

#[test]
fn nothing_of_a_read_is_written_behind_a_gap_before_it_closes() {
    let (mut world, ends, local) = reading(5, EndpointConfig::default());
    let untouched = world.hosts[0].memory.bytes(local).to_vec();
    for ahead in [4, 2, 1, 2] {
        world.forge(1, 0, &read_response(ends[0], ahead, 5));
    }
    assert_eq!(world.hosts[0].memory.bytes(local), untouched);
    assert_eq!(ends[0].counter(&world, "reorder_kept"), 3);
    assert_eq!(ends[0].counter(&world, "reorder_duplicate"), 1);
    world.forge(1, 0, &read_response(ends[0], 0, 5));
    let firsts = |world: &World| -> Vec<u8> {
        world.hosts[0].memory.bytes(local).chunks(256).map(|it| it[0]).collect()
    };
    assert_eq!(firsts(&world)[..3], [0, 1, 2]);
    assert_eq!(ends[0].sent(&world), []);
    world.forge(1, 0, &read_response(ends[0], 3, 5));
    assert_eq!(firsts(&world), [0, 1, 2, 3, 4]);
    assert_eq!(ends[0].sent(&world).len(), 1);
    assert_eq!(world.hosts[0].endpoint.reorder_bytes(), 0);
}

//= test rc-read-psns
#[test]
fn of_a_read_exactly_what_is_missing_is_requested_again() {
    let mut world = World::new(2, WorldConfig { link: FAST, ..test_config() });
    world.keep_timeline(true);
    let options = Options { ack_timeout: timeout(14), ..DEFAULT };
    let ends = connect(&mut world, [0, 1], options);
    let lost = [17, 30, 31, 32, 59];
    let fates = (0..60).map(|i| if lost.contains(&i) { Fate::Drop } else { Fate::Pass });
    world.set_impairment(1, Impairment::scripted(fates));
    let exchange = Exchange::post(&mut world, ends, Kind::Read, 60 * 256, 2);
    world.run_until(|world| exchange.is_done(world));
    exchange.check(&world);
    let requests = world.sent(0).into_iter().map(|it| it.headers());
    let requests: Vec<_> =
        requests.map(|it| (it.bth.psn.distance_from(expected()), it.reth.unwrap().len)).collect();
    let whole = 60 * 256;
    let again = [(17, 256), (30, 3 * 256), (59, 256)];
    assert_eq!(requests, [&[(0, whole), (60, whole)][..], &again].concat(), "{}", world.report());
    assert_eq!(world.counter(1, "sent_pkts"), 125);
}

#[test]
fn a_lost_repair_of_a_read_is_repeated_though_a_later_gap_waits_for_it() {
    let mut world = World::new(2, WorldConfig { link: FAST, ..test_config() });
    let options = Options { ack_timeout: timeout(14), ..DEFAULT };
    let ends = connect(&mut world, [0, 1], options);
    // Two responses, and the repetition of the first.
    let lost = [17, 30, 60];
    let fates = (0..=60).map(|i| if lost.contains(&i) { Fate::Drop } else { Fate::Pass });
    world.set_impairment(1, Impairment::scripted(fates));
    let exchange = Exchange::post(&mut world, ends, Kind::Read, 60 * 256, 1);
    world.run_until(|world| exchange.is_done(world));
    exchange.check(&world);
    assert_eq!(ends[0].counter(&world, "ack_timeout"), 0, "{}", world.report());
    let millis = world.now().as_nanos() / 1_000_000;
    assert!(millis < 2, "{millis} ms\n{}", world.report());
}

#[test]
fn an_answer_to_an_atomic_behind_a_lost_one_is_kept() {
    let mut world = World::pair();
    let options = Options { ack_timeout: timeout(14), ..DEFAULT };
    let ends = connect(&mut world, [0, 1], options);
    world.set_impairment(1, Impairment::scripted([Fate::Pass, Fate::Drop]));
    let exchange = Exchange::post(&mut world, ends, Kind::FetchAdd, 8, 4);
    world.run_until(|world| exchange.is_done(world));
    exchange.check(&world);
    assert_eq!((world.counter(0, "sent_pkts"), world.counter(1, "sent_pkts")), (5, 5));
    assert_eq!(world.counter(0, "reorder_kept"), 2);
}

#[test]
fn responses_behind_a_gap_fill_no_more_than_the_limit_and_leave_some() {
    const LIMIT: usize = 16 << 10;
    let config = EndpointConfig { max_reorder_bytes: LIMIT, ..EndpointConfig::default() };
    let (mut world, ends, _) = reading(100, config);
    for ahead in 1..100 {
        world.forge(1, 0, &read_response(ends[0], ahead, 100));
    }
    let held = world.hosts[0].endpoint.reorder_bytes();
    assert!(held > LIMIT / 4 && held <= LIMIT / 2, "{held} bytes");
    assert!(world.counter(0, "reorder_full") > 0);
    ends[0].move_to(&mut world, QpState::Error);
    assert_eq!(world.hosts[0].endpoint.reorder_bytes(), 0);
}

#[test]
fn with_a_limit_of_zero_a_response_behind_a_gap_is_dropped() {
    let config = EndpointConfig { max_reorder_bytes: 0, ..EndpointConfig::default() };
    let (mut world, ends, _) = reading(5, config);
    world.forge(1, 0, &read_response(ends[0], 1, 5));
    assert_eq!(ends[0].counter(&world, "reorder_kept"), 0);
    assert_eq!(ends[0].counter(&world, "implied_nak"), 1);
}
