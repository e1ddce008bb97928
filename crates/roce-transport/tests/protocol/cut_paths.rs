//! Paths that cut packet trains: each packet takes a slot of the peer's receive ring.

use std::time::Duration;

use roce_fabric::{Impairment, ImpairmentRates, LinkConfig};
use roce_wire::PathMtu;

use crate::common::connection::{DEFAULT, Options, connect, timeout};
use crate::common::exchange::{Exchange, Kind};
use crate::common::world::{World, WorldConfig, test_config};

/// 10 Gb/s, 20 µs, and a receive ring of 128 slots; trains arrive whole, or are cut.
fn config(whole_trains: bool) -> WorldConfig {
    let latency = Duration::from_micros(20);
    let link = LinkConfig { latency, bits_per_sec: Some(10_000_000_000), queue_frames: 128 };
    WorldConfig { link, whole_trains, batch: 8, ..test_config() }
}

const OPTIONS: Options = Options { path_mtu: PathMtu::B4096, ack_timeout: timeout(14), ..DEFAULT };
const QUEUE_PAIRS: usize = 8;
const LEN: usize = 64 << 10;
const COUNT: usize = 40;
/// Nanoseconds that all messages take at that rate.
const IDEAL: u64 = (QUEUE_PAIRS * COUNT * LEN) as u64 * 8 / 10;

/// Sends all messages; returns how many frames were lost, and how long it took.
fn send(world: &mut World, options: Options) -> (u64, u64) {
    let ends: Vec<_> = (0..QUEUE_PAIRS).map(|_| connect(world, [0, 1], options)).collect();
    let exchanges: Vec<_> = ends
        .into_iter()
        .map(|ends| Exchange::prepare(world, ends, Kind::Write, LEN, COUNT))
        .collect();
    let (began, before) = (world.now(), world.link_stats().overflowed);
    exchanges.iter().for_each(|it| it.post_sends(world));
    world.run_until(|world| exchanges.iter().all(|it| it.is_done(world)));
    exchanges.iter().for_each(|it| it.check(world));
    let took = world.now().saturating_since(began).as_nanos() as u64;
    (world.link_stats().overflowed - before, took)
}

#[test]
fn a_ring_that_overflows_where_trains_are_cut_overflows_once() {
    let mut world = World::new(2, config(false));
    let first = send(&mut world, OPTIONS);
    let second = send(&mut world, OPTIONS);
    let named = format!("{first:?}, then {second:?}, ideal {IDEAL} ns\n{}", world.report());
    // Before anything is lost, each queue pair sends its first window, and later at once what an ACK
    // to kept packets admits.
    assert!(first.0 <= 9 * 128, "{named}");
    assert_eq!(second.0, 0, "{named}");
    assert!(first.1 < IDEAL * 3 / 2 && second.1 < IDEAL * 5 / 4, "{named}");
}

#[test]
fn trains_that_arrive_whole_are_not_taken_for_cut() {
    let mut world = World::new(2, config(true));
    let options = Options { path_mtu: PathMtu::B1024, gap_reports: true, ..OPTIONS };
    let (lost, took) = send(&mut world, options);
    assert_eq!(lost, 0, "{took}\n{}", world.report());
    assert!(took < IDEAL * 5 / 4, "{took} of {IDEAL} ns\n{}", world.report());
    // Frames that are lost whole do not show that they were cut.
    let rates = ImpairmentRates { drop: 0.02, ..ImpairmentRates::default() };
    world.set_impairment(0, Impairment::random(7, rates));
    send(&mut world, options);
    world.set_impairment(0, Impairment::scripted([]));
    let sent = |world: &World| (world.counter(0, "sent_pkts"), world.link_stats().sent);
    let before = sent(&world);
    send(&mut world, options);
    let after = sent(&world);
    // A message takes four frames: its longer first packet, two trains, and the ACK. Cut trains of
    // a quarter of the limit would make it five.
    let (packets, frames) = (after.0 - before.0, after.1 - before.1);
    assert!(packets / frames >= 15, "{packets} packets in {frames} frames\n{}", world.report());
}
