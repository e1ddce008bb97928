//! Random misfortune, thousands of seeds: exactly once, in order, intact.

use std::time::Duration;

use proptest::prelude::*;
use roce_fabric::{Impairment, ImpairmentRates, LinkConfig};
use roce_wire::{PathMtu, Psn, Syndrome};

use crate::common::connection::{DEFAULT, Options, connect, timeout};
use crate::common::exchange::{Exchange, Kind};
use crate::common::repeat::for_each_case;
use crate::common::world::{Sent, World, WorldConfig, test_config};

/// A random network with random traffic over it.
#[derive(Clone, Debug)]
struct Scenario {
    seed: u64,
    rates: ImpairmentRates,
    link: LinkConfig,
    path_mtu: PathMtu,
    max_packets: usize,
    whole_trains: bool,
    batch: usize,
    eager: bool,
    /// From which side, what, how long, how many.
    traffic: Vec<(bool, Kind, usize, usize)>,
}

/// Never so bad that an honest sender may give up: what comes later than the retransmission
/// timer is as good as lost, and eight losses in a row must not happen.
fn rates() -> impl Strategy<Value = ImpairmentRates> {
    (0..4u32, 0..8u32, 0..20u32, 0..4u32, 0..200u64).prop_map(|(drop, twice, late, bad, root)| {
        let max_delay = Duration::from_micros(root * root);
        let late = if max_delay < TIMER { late } else { late / 4 };
        ImpairmentRates {
            drop: f64::from(drop) / 100.0,
            duplicate: f64::from(twice) / 100.0,
            delay: f64::from(late) / 100.0,
            corrupt: f64::from(bad) / 100.0,
            mark: f64::from(late) / 100.0,
            max_delay,
        }
    })
}

/// What `ack_timeout` 12 means.
const TIMER: Duration = Duration::from_nanos(4096 << 12);

fn link() -> impl Strategy<Value = LinkConfig> {
    (1..50u64, prop::option::of(100_000_000..20_000_000_000u64), 8..64usize).prop_map(
        |(micros, bits_per_sec, queue_frames)| LinkConfig {
            latency: Duration::from_micros(micros),
            bits_per_sec,
            queue_frames,
        },
    )
}

fn scenario() -> impl Strategy<Value = Scenario> {
    let kind = prop::sample::select(&Kind::ALL[..]);
    let traffic = prop::collection::vec((any::<bool>(), kind, 0..3000usize, 1..5usize), 1..5);
    let mtu = prop::sample::select(vec![PathMtu::B256, PathMtu::B512, PathMtu::B1024]);
    let driving =
        (prop::sample::select(vec![1, 2, 3, 7, 64]), any::<bool>(), 1..20usize, any::<bool>());
    (any::<u64>(), rates(), link(), mtu, driving, traffic).prop_map(
        |(seed, rates, link, path_mtu, (max_packets, whole_trains, batch, eager), traffic)| {
            Scenario {
                seed,
                rates,
                link,
                path_mtu,
                max_packets,
                whole_trains,
                batch,
                eager,
                traffic,
            }
        },
    )
}

/// What a packet refuses, if it does.
fn refusal(packet: &Sent) -> Option<(Psn, Syndrome)> {
    let headers = packet.headers();
    let syndrome = headers.aeth?.syndrome;
    let refuses = matches!(syndrome, Syndrome::Nak(_) | Syndrome::RnrNak { .. });
    refuses.then_some((headers.bth.psn, syndrome))
}

fn run(scenario: Scenario) {
    let Scenario { seed, rates, link, path_mtu, max_packets, whole_trains, batch, eager, .. } =
        scenario;
    let config = WorldConfig {
        link,
        train_packets: max_packets,
        whole_trains,
        batch,
        eager,
        ..test_config()
    };
    let mut world = World::new(2, config);
    let options = Options { path_mtu, ack_timeout: timeout(12), ..DEFAULT };
    let ends = connect(&mut world, [0, 1], options);
    world.set_impairment(0, Impairment::random(seed, rates));
    world.set_impairment(1, Impairment::random(!seed, rates));
    world.keep_timeline(true);
    let mut exchanges = vec![];
    for (forward, kind, len, count) in scenario.traffic {
        let ends = if forward { ends } else { [ends[1], ends[0]] };
        exchanges.push(Exchange::post(&mut world, ends, kind, len, count));
    }
    world.run_until(|world| exchanges.iter().all(|exchange| exchange.is_done(world)));
    world.settle();
    for node in 0..2 {
        let left: Vec<_> = world.sent(node).iter().filter_map(refusal).collect();
        assert_eq!(world.refusals(node), left, "told are those that left");
    }
    for exchange in &exchanges {
        exchange.check(&world);
    }
}

#[test]
fn everything_arrives_exactly_once_in_order_and_intact_whatever_the_network_does() {
    for_each_case(10_000, scenario(), run);
}
