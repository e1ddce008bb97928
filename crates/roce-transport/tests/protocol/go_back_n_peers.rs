//! Peers that keep no packet behind a missing one, as `rdma_rxe` and most cards: no loss, delay or
//! copy makes a requester take one for a peer that keeps packets, or send it a packet of no
//! standard.

use std::time::Duration;

use roce_fabric::{Fate, Impairment, ImpairmentRates, LinkConfig};
use roce_transport::{Endpoint, EndpointConfig, WindowConfig};
use roce_wire::{NakCode, PathMtu, opcode};

use crate::common::connection::{DEFAULT, Options, connect, timeout};
use crate::common::exchange::{Exchange, Kind};
use crate::common::forge;
use crate::common::world::{World, WorldConfig, test_config};

const OPTIONS: Options = Options { path_mtu: PathMtu::B1024, ack_timeout: timeout(14), ..DEFAULT };
const SEEDS: u64 = 6;

/// What a path does, and the microseconds that all seeds together took, packet by packet and in whole
/// trains, when nothing was ever inferred of a peer: with a belief that could not form.
struct Path {
    name: &'static str,
    latency: u64,
    rates: ImpairmentRates,
    without_inference: [u64; 2],
}

const fn rates(drop: f64, delay: f64, duplicate: f64, max_delay: u64) -> ImpairmentRates {
    let max_delay = Duration::from_micros(max_delay);
    ImpairmentRates { drop, delay, duplicate, max_delay, corrupt: 0.0, mark: 0.0 }
}

const fn path(
    name: &'static str,
    latency: u64,
    rates: ImpairmentRates,
    without_inference: [u64; 2],
) -> Path {
    Path { name, latency, rates, without_inference }
}

const PATHS: [Path; 9] = [
    path("loss of 0.2 %, 2 µs", 2, rates(0.002, 0.0, 0.0, 0), [49173, 45620]),
    path("loss of 1 %, 2 µs", 2, rates(0.01, 0.0, 0.0, 0), [52437, 52335]),
    path("loss of 0.2 %", 20, rates(0.002, 0.0, 0.0, 0), [65477, 45944]),
    path("loss of 1 %", 20, rates(0.01, 0.0, 0.0, 0), [196488, 52947]),
    path("loss of 1 %, 108 µs", 108, rates(0.01, 0.0, 0.0, 0), [962787, 57835]),
    path("delay", 20, rates(0.0, 0.02, 0.0, 60), [279016, 49899]),
    path("copies", 20, rates(0.002, 0.0, 0.02, 60), [75162, 45944]),
    path("all", 20, rates(0.002, 0.05, 0.02, 200), [444887, 79000]),
    path("reordering", 20, rates(0.0, 0.5, 0.0, 20), [828011, 108532]),
];

/// Returns the microseconds that 8 MiB take over each of so many paths, and the repairs of packets alone.
fn transfers(path: &Path, whole_trains: bool, batch: usize) -> (u64, u64) {
    let (mut micros, mut repairs) = (0, 0);
    for seed in 0..SEEDS {
        let link = LinkConfig {
            latency: Duration::from_micros(path.latency),
            bits_per_sec: Some(10_000_000_000),
            queue_frames: usize::MAX,
        };
        let config = WorldConfig { link, whole_trains, batch, ..test_config() };
        let mut world = World::new(2, config);
        let config = EndpointConfig { max_reorder_bytes: 0, ..EndpointConfig::default() };
        world.hosts[1].endpoint = Endpoint::with_observer(config, Default::default());
        world.set_impairment(0, Impairment::random(seed, path.rates));
        world.keep_timeline(true);
        let ends = connect(&mut world, [0, 1], OPTIONS);
        let exchange = Exchange::post(&mut world, ends, Kind::Write, 1 << 20, 8);
        world.run_until(|world| exchange.is_done(world));
        exchange.check(&world);
        micros += world.now().as_nanos() / 1000;
        repairs += world.counter(0, "selective_repeat");
        for node in 0..2 {
            let sent = world.sent(node);
            assert!(sent.iter().all(|it| it.opcode() != opcode::GAP_REPORT), "{}", path.name);
        }
    }
    (micros, repairs)
}

#[test]
fn a_peer_that_goes_back_n_is_as_fast_as_if_nothing_were_inferred_and_gets_only_the_standard() {
    for path in &PATHS {
        for (i, whole_trains) in [false, true].into_iter().enumerate() {
            let (micros, repairs) = transfers(path, whole_trains, usize::MAX);
            let plain = path.without_inference[i];
            println!(
                "{}, trains {whole_trains}: {micros} µs, {plain} without, {repairs} repairs",
                path.name
            );
            assert!(micros * 10 <= plain * 11, "{}: {micros} µs, and not {plain}", path.name);
        }
    }
}

#[test]
fn a_peer_that_takes_one_packet_at_a_time_is_never_sent_a_repair() {
    for path in &PATHS {
        let (_, repairs) = transfers(path, false, 1);
        assert_eq!(repairs, 0, "{}", path.name);
    }
}

#[test]
fn what_was_sent_twice_before_a_nak_is_no_evidence_that_the_peer_keeps_packets() {
    const PACKETS: u32 = 40;
    let window = WindowConfig {
        initial_packets: 64,
        min_packets: 64,
        max_packets: 64,
        ..Default::default()
    };
    let endpoint = EndpointConfig { window, ..EndpointConfig::default() };
    let mut world = World::new(2, WorldConfig { endpoint, ..test_config() });
    let ends = connect(&mut world, [0, 1], OPTIONS);
    // Now the round trip is known.
    let first = Exchange::post(&mut world, ends, Kind::Write, 1024, 1);
    world.run_until(|world| first.is_done(world));
    // The peer is played by hand. It drops what is behind a missing packet.
    world.set_impairment(0, Impairment::scripted(vec![Fate::Drop; 10_000]));
    for round in 0..3 {
        let _exchange = Exchange::post(&mut world, ends, Kind::Write, PACKETS as usize * 1024, 1);
        let respond = |world: &mut World, packet: u32, syndrome| {
            let psn = OPTIONS.first_psn[0];
            let psn = psn.advanced_by(1 + PACKETS * round + packet);
            world.forge(1, 0, &forge::acknowledge(ends[0].qpn, psn, syndrome));
        };
        let resent = |world: &World| world.counter(0, "resent_pkts");
        let before = resent(&world);
        respond(&mut world, 5, forge::nak(NakCode::PsnSequence));
        assert_eq!(resent(&world) - before, 4, "round {round}: {}", world.report());
        respond(&mut world, 8, forge::ACK);
        assert_eq!(resent(&world) - before, 35, "all the others are on the way twice");
        // The first copy of packet 20 is late, the second one too; then the second copies of all others.
        respond(&mut world, 20, forge::nak(NakCode::PsnSequence));
        respond(&mut world, PACKETS - 1, forge::ACK);
        assert_eq!(ends[0].sent(&world).len(), round as usize + 2, "{}", world.report());
    }
    assert_eq!(world.counter(0, "selective_repeat"), 0);
}
