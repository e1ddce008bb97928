//! Losses that draw no NAK: they are missed within a few round trips, not after the ACK timer.

use std::time::Duration;

use roce_fabric::{Fate, Impairment, ImpairmentRates, LinkConfig};
use roce_transport::{CompletionStatus, EndpointConfig, PeerWindowConfig, QpState};
use roce_wire::PathMtu;

use crate::common::connection::{DEFAULT, End, Options, connect, timeout};
use crate::common::exchange::{Exchange, Kind};
use crate::common::world::{World, WorldConfig, test_config};

/// The ACK timer fires after four seconds: nothing here may wait for it.
const PATIENT: Options = Options { ack_timeout: timeout(20), ..DEFAULT };

/// Ten packets.
const LEN: usize = 10 * 256;

/// A round trip of 20 µs.
fn world() -> World {
    let link = LinkConfig::with_latency(Duration::from_micros(10));
    World::new(2, WorldConfig { link, ..test_config() })
}

/// A connection that has measured its round trip.
fn connect_and_measure(world: &mut World, options: Options) -> [End; 2] {
    let ends = connect(world, [0, 1], options);
    for _ in 0..4 {
        let exchange = Exchange::post(world, ends, Kind::Write, 100, 1);
        world.run_until(|world| exchange.is_done(world));
    }
    ends
}

fn drops(count: usize) -> Vec<Fate> {
    vec![Fate::Drop; count]
}

/// Sends one message of ten packets while `from` meets these fates; says how long it took
/// and how many packets were sent twice.
#[track_caller]
fn send_through(kind: Kind, from: usize, fates: Vec<Fate>, options: Options) -> (Duration, u64) {
    let mut world = world();
    let ends = connect_and_measure(&mut world, options);
    let (started, resent) = (world.now(), ends[0].counter(&world, "resent_pkts"));
    world.set_impairment(from, Impairment::scripted(fates));
    let exchange = Exchange::post(&mut world, ends, kind, LEN, 1);
    world.run_until(|world| exchange.is_done(world));
    let took = world.now().saturating_since(started);
    exchange.check(&world);
    world.settle();
    (took, ends[0].counter(&world, "resent_pkts") - resent)
}

#[test]
fn a_lost_tail_is_missed_within_a_few_round_trips() {
    for kind in Kind::ALL {
        let is_one = kind.is_atomic() || kind == Kind::Read || kind.has_empty_response();
        let packets = if is_one { 1 } else { 10 };
        for lost in 1..=packets {
            let mut fates = vec![Fate::Pass; packets - lost];
            fates.extend(drops(lost));
            let (took, _) = send_through(kind, 0, fates, PATIENT);
            assert!(took < Duration::from_millis(1), "{kind:?}, the last {lost}: {took:?}");
        }
    }
}

#[test]
fn a_lost_tail_of_responses_is_missed_within_a_few_round_trips() {
    for kind in Kind::ALL {
        let answers = if kind == Kind::Read { 10 } else { 1 };
        for lost in 1..=answers {
            let mut fates = vec![Fate::Pass; answers - lost];
            fates.extend(drops(lost));
            let (took, _) = send_through(kind, 1, fates, PATIENT);
            assert!(took < Duration::from_millis(1), "{kind:?}, the last {lost}: {took:?}");
        }
    }
}

//= test rc-tail-loss-probe
#[test]
fn one_packet_is_enough_to_learn_that_only_the_acknowledgement_was_lost() {
    for kind in [Kind::Send, Kind::Write] {
        let (_, resent) = send_through(kind, 1, drops(1), PATIENT);
        assert_eq!(resent, 1, "{kind:?}");
    }
}

#[test]
fn a_packet_that_is_lost_again_is_sent_again_within_a_few_round_trips() {
    for kind in [Kind::Send, Kind::Write] {
        for again in 1..=4 {
            // The second packet, and then whatever is sent again for a while.
            let mut fates = vec![Fate::Pass; 10];
            fates[1] = Fate::Drop;
            fates.extend(drops(4 * again));
            let (took, _) = send_through(kind, 0, fates, PATIENT);
            // Each wait is twice the one before.
            let most = Duration::from_micros(300) * (1 << again);
            assert!(took < most, "{kind:?}, {again} times: {took:?}");
        }
    }
}

#[test]
fn a_nak_that_is_lost_is_made_up_for_within_a_few_round_trips() {
    for kind in [Kind::Send, Kind::Write] {
        for behind in 1..=8 {
            let mut fates = vec![Fate::Pass; 10];
            fates[9 - behind] = Fate::Drop;
            let mut world = world();
            let ends = connect_and_measure(&mut world, PATIENT);
            let started = world.now();
            world.set_impairment(0, Impairment::scripted(fates));
            world.set_impairment(1, Impairment::scripted(drops(1)));
            let exchange = Exchange::post(&mut world, ends, kind, LEN, 1);
            world.run_until(|world| exchange.is_done(world));
            let took = world.now().saturating_since(started);
            exchange.check(&world);
            assert!(took < Duration::from_millis(2), "{kind:?}: {took:?}");
        }
    }
}

#[test]
fn what_is_done_before_the_ack_timer_fires_costs_no_retry() {
    let options = Options { retry_count: 1, ..PATIENT };
    for rounds in 1..=8 {
        let mut fates = vec![Fate::Pass; 10];
        fates[1] = Fate::Drop; // the NAK for it costs the only retry
        fates.extend(drops(4 * rounds));
        send_through(Kind::Write, 0, fates, options);
    }
}

//= test rc-probe-backoff
#[test]
fn a_peer_without_responses_gets_few_packets() {
    for kind in [Kind::Send, Kind::Write, Kind::Read, Kind::FetchAdd] {
        let mut world = world();
        let ends = connect_and_measure(&mut world, Options { retry_count: 0, ..PATIENT });
        let before = ends[0].counter(&world, "resent_pkts");
        world.set_impairment(1, Impairment::scripted(drops(100_000)));
        Exchange::post(&mut world, ends, kind, 20_000, 1);
        let started = world.now();
        world.settle();
        let took = world.now().saturating_since(started);
        // As if nothing had been sent in between.
        let timer = Duration::from_nanos(4096 << 20);
        assert!(took >= timer && took < timer + Duration::from_micros(50), "{took:?}");
        assert_eq!(ends[0].sent(&world)[4].status, CompletionStatus::RetryExceeded);
        assert_eq!(ends[0].state(&world), QpState::Error);
        // Each wait is twice the one before: 14 times 200 µs are less than four seconds.
        let resent = ends[0].counter(&world, "resent_pkts") - before;
        assert!(resent <= 1 + 4 * 15, "{kind:?}: {resent}");
    }
}

#[test]
fn the_first_packet_after_a_probe_timeout_carries_ack_req() {
    let mut world = world();
    let ends = connect_and_measure(&mut world, PATIENT);
    world.keep_timeline(true);
    // All of the message, and the question that follows.
    world.set_impairment(0, Impairment::scripted(drops(11)));
    let exchange = Exchange::post(&mut world, ends, Kind::Write, LEN, 1);
    world.run_until(|world| exchange.is_done(world));
    exchange.check(&world);
    let asks: Vec<_> = world.sent(0).iter().map(|it| it.headers().bth.ack_request).collect();
    assert_eq!(asks[9..12], [true; 3], "the last, the last again, the first again: {asks:?}");
}

#[test]
fn after_a_timeout_few_packets_are_sent_however_they_are_posted() {
    let mut world = world();
    let ends = connect_and_measure(&mut world, PATIENT);
    world.set_impairment(0, Impairment::scripted(drops(1000)));
    let exchange = Exchange::prepare(&mut world, ends, Kind::Write, 8, 40);
    exchange.post_send(&mut world, 0);
    world.run_until(|world| world.counter(0, "probe_timeout") == 1);
    world.keep_timeline(true);
    (1..40).for_each(|i| exchange.post_send(&mut world, i));
    let sent = world.sent(0).len();
    // With the one that was sent again.
    assert_eq!(sent + 1, 4, "{}", world.report());
}

#[test]
fn a_loss_found_by_a_probe_timeout_halves_the_window_too() {
    let mut world = world();
    let ends = connect_and_measure(&mut world, PATIENT);
    world.set_impairment(0, Impairment::scripted(drops(101)));
    let exchange = Exchange::post(&mut world, ends, Kind::Write, 100 * 256, 1);
    world.run_until(|world| exchange.is_done(world));
    world.keep_timeline(true);
    Exchange::post(&mut world, ends, Kind::Write, 300 * 256, 1);
    let sent = world.sent(0).len();
    assert!((4..=96).contains(&sent), "{sent} packets at once, 128 before the loss");
}

//= test rc-retries
#[test]
fn a_peer_that_naks_for_ever_is_given_up_after_the_retries() {
    use crate::common::forge;
    use roce_wire::NakCode;
    let mut world = world();
    let options = Options { retry_count: 3, ack_timeout: timeout(12), ..DEFAULT }; // 17 ms
    let ends = connect_and_measure(&mut world, options);
    world.set_impairment(0, Impairment::scripted(drops(1_000_000)));
    Exchange::post(&mut world, ends, Kind::Write, LEN, 1);
    let stuck = crate::common::connection::FIRST_PSN + 4;
    let stuck = roce_wire::Psn::new(stuck & 0xff_ffff).unwrap();
    let nak = forge::acknowledge(ends[0].qpn, stuck, forge::nak(NakCode::PsnSequence));
    let started = world.now();
    while ends[0].state(&world) == QpState::ReadyToSend {
        world.forge(1, 0, &nak);
        world.run_for(Duration::from_micros(50));
        let took = world.now().saturating_since(started);
        assert!(took < Duration::from_nanos(4096 << 12) * 5, "{}", world.report());
    }
}

#[test]
fn a_peer_that_responds_late_gets_few_packets_twice() {
    for late in [300, 1000, 3000] {
        let answer = vec![Fate::Delay(Duration::from_micros(late))];
        let (took, resent) = send_through(Kind::Write, 1, answer, PATIENT);
        assert!(resent <= 13, "{late} µs: {resent}");
        assert!(took <= Duration::from_micros(late + 50), "{late} µs: {took:?}");
    }
}

#[test]
fn packets_sent_before_a_peer_paused_are_not_all_sent_again() {
    for kind in [Kind::Send, Kind::Write] {
        let link = LinkConfig::with_latency(Duration::from_micros(10));
        let mut world = World::new(2, WorldConfig { link, batch: 5, ..test_config() });
        let ends = connect_and_measure(&mut world, PATIENT);
        // One message after the other, when it has time again.
        let late = (0..100).map(|i| Fate::Delay(Duration::from_micros(3000 + 20 * i)));
        world.set_impairment(1, Impairment::scripted(late));
        let exchange = Exchange::post(&mut world, ends, kind, 5 * 256, 20);
        world.run_until(|world| exchange.is_done(world));
        exchange.check(&world);
        let resent = ends[0].counter(&world, "resent_pkts");
        assert!(resent <= 16, "{kind:?}: {resent}");
    }
}

#[test]
fn a_peer_that_has_become_slow_is_soon_believed() {
    for kind in [Kind::Send, Kind::Write, Kind::Read, Kind::FetchAdd] {
        for late in [300, 1000, 5000] {
            let mut world = world();
            let ends = connect_and_measure(&mut world, PATIENT);
            let late = vec![Fate::Delay(Duration::from_micros(late)); 10_000];
            world.set_impairment(1, Impairment::scripted(late));
            for _ in 0..100 {
                let exchange = Exchange::post(&mut world, ends, kind, LEN, 1);
                world.run_until(|world| exchange.is_done(world));
                exchange.check(&world);
            }
            let resent = ends[0].counter(&world, "resent_pkts");
            assert!(resent <= 40, "{kind:?}: {resent} packets sent again for nothing");
        }
    }
}

#[test]
fn one_packet_of_a_hundred_lost_leaves_a_good_part_of_the_rate() {
    let link = LinkConfig {
        latency: Duration::from_micros(10),
        bits_per_sec: Some(10_000_000_000),
        queue_frames: usize::MAX,
    };
    let options = Options { path_mtu: PathMtu::B1024, ack_timeout: timeout(14), ..DEFAULT };
    let rates = ImpairmentRates { drop: 0.01, ..ImpairmentRates::default() };
    // As a driver sets it where each packet is a frame of its own.
    let peer_window = PeerWindowConfig { initial_frames: 128, max_frames: 2048, min_frames: 4 };
    let endpoint = EndpointConfig { peer_window, ..EndpointConfig::default() };
    for kind in [Kind::Send, Kind::Write, Kind::Read] {
        let time = |seed: Option<u64>| {
            let config = WorldConfig { link, endpoint: endpoint.clone(), ..test_config() };
            let mut world = World::new(2, config);
            let ends = connect(&mut world, [0, 1], options);
            if let Some(seed) = seed {
                world.set_impairment(0, Impairment::random(seed, rates));
                world.set_impairment(1, Impairment::random(!seed, rates));
            }
            let exchange = Exchange::post(&mut world, ends, kind, 1 << 20, 4);
            world.run_until(|world| exchange.is_done(world));
            exchange.check(&world);
            world.now().as_nanos()
        };
        let ideal = time(None);
        for seed in 0..8 {
            let took = time(Some(seed));
            assert!(took < ideal * 5, "{kind:?}, seed {seed}: {took} of {ideal} ns");
        }
    }
}
