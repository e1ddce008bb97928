//! Queues that overflow: the send window finds what fits, and the message gets through.

use std::time::Duration;

use roce_fabric::{Impairment, ImpairmentRates, LinkConfig};
use roce_transport::congestion::{CongestionAlgorithm, CongestionConfig, DcqcnParameters};
use roce_transport::{EndpointConfig, PeerWindowConfig, WindowConfig};
use roce_wire::{PathMtu, Psn, opcode};

use crate::common::connection::{DEFAULT, Options, connect, timeout};
use crate::common::exchange::{Exchange, Kind};
use crate::common::forge;
use crate::common::world::{World, WorldConfig, test_config};

/// 10 Gb/s, 20 µs, and a queue of so many frames.
fn narrow(queue_frames: usize) -> WorldConfig {
    let latency = Duration::from_micros(20);
    let link = LinkConfig { latency, bits_per_sec: Some(10_000_000_000), queue_frames };
    WorldConfig { link, ..test_config() }
}

const OPTIONS: Options = Options { path_mtu: PathMtu::B1024, ack_timeout: timeout(10), ..DEFAULT };

#[test]
fn a_queue_shorter_than_the_window_does_not_ruin_the_rate() {
    for kind in [Kind::Write, Kind::Send, Kind::Read] {
        for queue_frames in [64, 128, 256] {
            let mut world = World::new(2, narrow(queue_frames));
            let ends = connect(&mut world, [0, 1], OPTIONS);
            let exchange = Exchange::post(&mut world, ends, kind, 1 << 20, 8);
            world.run_until(|world| exchange.is_done(world));
            exchange.check(&world);
            let took = world.now().as_nanos();
            let ideal = (8u64 << 20) * 8 / 10; // nanoseconds at 10 Gb/s
            let named = format!("{kind:?}, queue of {queue_frames}: {took} of {ideal} ns");
            assert!(took < ideal * 5, "{named}\n{}", world.report());
        }
    }
}

#[test]
fn a_queue_that_overflows_costs_no_more_than_the_time_of_the_message_once_more() {
    // With the ACK timer of ibverbs' own programs: one of its waits is ten messages.
    let options = Options { ack_timeout: timeout(14), ..OPTIONS };
    for kind in [Kind::Write, Kind::Send, Kind::Read] {
        let time = |queue_frames| {
            let mut world = World::new(2, narrow(queue_frames));
            let ends = connect(&mut world, [0, 1], options);
            let exchange = Exchange::post(&mut world, ends, kind, 8 << 20, 1);
            world.run_until(|world| exchange.is_done(world));
            exchange.check(&world);
            world.now().as_nanos()
        };
        let ideal = time(usize::MAX);
        for queue_frames in [64, 96, 128, 256] {
            let took = time(queue_frames);
            assert!(took < ideal * 2, "{kind:?}, queue of {queue_frames}: {took} of {ideal} ns");
        }
    }
}

#[test]
fn four_senders_to_one_receiver_all_get_through() {
    let mut world = World::new(5, narrow(64));
    let mut exchanges = vec![];
    for sender in 1..5 {
        let ends = connect(&mut world, [sender, 0], OPTIONS);
        exchanges.push(Exchange::post(&mut world, ends, Kind::Write, 1 << 20, 2));
    }
    world.run_until(|world| exchanges.iter().all(|exchange| exchange.is_done(world)));
    exchanges.iter().for_each(|exchange| exchange.check(&world));
    let took = world.now().as_nanos();
    let ideal = (8u64 << 20) * 8 / 10;
    assert!(took < ideal * 8, "{took} of {ideal} ns\n{}", world.report());
}

#[test]
fn long_messages_arrive_through_random_loss() {
    for seed in 0..12 {
        for kind in [Kind::Send, Kind::Write, Kind::Read] {
            let mut world = World::new(2, narrow(128));
            let ends = connect(&mut world, [0, 1], OPTIONS);
            let rates = ImpairmentRates {
                drop: 0.01,
                duplicate: 0.01,
                delay: 0.05,
                corrupt: 0.005,
                mark: 0.0,
                max_delay: Duration::from_micros(100),
            };
            world.set_impairment(0, Impairment::random(seed, rates));
            world.set_impairment(1, Impairment::random(!seed, rates));
            let there = Exchange::post(&mut world, ends, kind, 300_001, 3);
            let back = Exchange::post(&mut world, [ends[1], ends[0]], kind, 300_001, 3);
            world.run_until(|world| there.is_done(world) && back.is_done(world));
            there.check(&world);
            back.check(&world);
        }
    }
}

/// A window of 16 packets that may grow to 64, within a peer window that limits nothing.
fn growing(congestion: CongestionConfig) -> World {
    let window = WindowConfig { initial_packets: 16, max_packets: 64, ..WindowConfig::default() };
    let peer_window = PeerWindowConfig { initial_frames: 4096, min_frames: 4096, max_frames: 4096 };
    let endpoint = EndpointConfig { window, peer_window, congestion, ..EndpointConfig::default() };
    World::new(2, WorldConfig { endpoint, keep_timeline: true, ..narrow(usize::MAX) })
}

/// Sizes of node 0's send window during messages of `packets` packets, `depth` at a time.
fn windows(kind: Kind, packets: usize, depth: usize) -> Vec<u32> {
    let mut world = growing(CongestionConfig::default());
    let ends = connect(&mut world, [0, 1], OPTIONS);
    for _ in 0..50 {
        let exchange = Exchange::post(&mut world, ends, kind, packets << 10, depth);
        world.run_until(|world| exchange.is_done(world));
        exchange.check(&world);
    }
    world.windows(0)
}

#[test]
fn a_send_window_grows_while_it_is_the_limit_and_not_while_messages_fit_into_it() {
    for kind in [Kind::Write, Kind::Send, Kind::Read] {
        for (packets, depth) in [(1, 1), (8, 2), (16, 1)] {
            assert_eq!(
                windows(kind, packets, depth),
                [],
                "{kind:?}: {packets} packets, {depth} times"
            );
        }
        let sizes = windows(kind, 200, 1);
        assert!(sizes.is_sorted() && sizes[0] > 16, "{kind:?}: {sizes:?}");
        assert_eq!(sizes.last(), Some(&64), "{kind:?}: {sizes:?}");
    }
}

#[test]
fn a_send_window_does_not_grow_while_a_rate_is_the_limit() {
    // Half of the line rate for ever, which is five packets in a round trip.
    let dcqcn =
        DcqcnParameters { rp_time_reset: u32::MAX, rp_byte_reset: 0, ..DcqcnParameters::CONNECTX };
    let algorithm = CongestionAlgorithm::Dcqcn;
    let line_rate = 2_000_000_000;
    let congestion =
        CongestionConfig { algorithm, dcqcn, line_rate, ..CongestionConfig::default() };
    for kind in [Kind::Write, Kind::Send] {
        let mut world = growing(congestion);
        let ends = connect(&mut world, [0, 1], OPTIONS);
        let cnp = forge::packet(&forge::headers(opcode::CNP, ends[0].qpn, Psn::ZERO), &[]);
        world.forge(1, 0, &cnp);
        let exchange = Exchange::post(&mut world, ends, kind, 1 << 20, 1);
        world.run_until(|world| exchange.is_done(world));
        exchange.check(&world);
        assert_eq!(world.hosts[0].endpoint.rate_limit(ends[0].qpn), Some(line_rate / 2));
        assert_eq!(world.windows(0), [], "{kind:?}");
    }
}
