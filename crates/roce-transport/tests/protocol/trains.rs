//! Trains: cut anywhere on the way out and on the way in, they carry the same message.

use proptest::prelude::*;
use roce_wire::{PathMtu, opcode};

use crate::common::connection::{DEFAULT, Options, connect};
use crate::common::exchange::{Exchange, Kind};
use crate::common::repeat::for_each_case;
use crate::common::world::{World, WorldConfig, test_config};

fn carry(kind: Kind, len: usize, count: usize, config: WorldConfig) -> World {
    let mut world = World::new(2, config);
    world.keep_timeline(true);
    let ends = connect(&mut world, [0, 1], DEFAULT);
    let exchange = Exchange::post(&mut world, ends, kind, len, count);
    world.run_until(|world| exchange.is_done(world));
    exchange.check(&world);
    let refused: Vec<_> = world.hosts.iter().map(|node| node.refused_packets).collect();
    assert_eq!(refused, [0, 0], "every packet of every train is sound");
    world
}

#[test]
fn trains_of_every_length_carry_every_operation() {
    for max_packets in [1, 2, 3, 4, 5, 8, 16, 63, 64] {
        for kind in Kind::ALL {
            for whole_trains in [false, true] {
                let config =
                    WorldConfig { train_packets: max_packets, whole_trains, ..test_config() };
                carry(kind, 20 * 256 + 17, 3, config);
            }
        }
    }
}

#[test]
fn trains_cut_anywhere_on_the_way_in_carry_every_operation() {
    let kind = prop::sample::select(&Kind::ALL[..]);
    let strategy = (kind, 0..9000usize, 1..6usize, 1..64usize, 1..64usize, any::<bool>());
    for_each_case(1000, strategy, |(kind, len, count, max_packets, batch, whole_trains)| {
        let config =
            WorldConfig { train_packets: max_packets, batch, whole_trains, ..test_config() };
        carry(kind, len, count, config);
    });
}

#[test]
fn one_batch_of_packets_gets_one_acknowledgement() {
    let world = carry(Kind::Write, 64 * 256, 1, test_config());
    let acks = world.sent(1).into_iter().filter(|it| it.opcode() == opcode::RC_ACKNOWLEDGE);
    let mut times: Vec<_> = acks.map(|it| it.at).collect();
    let count = times.len();
    times.dedup();
    assert_eq!(times.len(), count, "never two at one instant");
}

#[test]
fn the_end_of_every_message_carries_ack_req() {
    for kind in [Kind::Send, Kind::Write] {
        let world = carry(kind, 1000, 5, test_config());
        for sent in &world.sent(0) {
            let bth = sent.headers().bth;
            let last = bth.opcode.info().position.is_last();
            assert!(!last || bth.ack_request, "{kind:?}: {bth:?}");
        }
    }
}

#[test]
fn a_long_message_requests_acks_inside() {
    let world = carry(Kind::Write, 2000 * 256, 1, test_config());
    let asks = world.sent(0).iter().filter(|it| it.headers().bth.ack_request).count();
    assert!(asks >= 2000 / 128, "{asks} asks in 2000 packets");
    assert!(asks <= 2000 / 32, "{asks} asks in 2000 packets: many trains need one only");
    let config = WorldConfig { train_packets: 1, ..test_config() };
    let world = carry(Kind::Write, 2000 * 256, 1, config);
    let asks = world.sent(0).iter().filter(|it| it.headers().bth.ack_request).count();
    assert!((2000 / 128..=2000 / 16).contains(&asks), "{asks} asks in 2000 packets one by one");
}

#[test]
fn every_first_and_middle_is_as_long_as_the_path_mtu() {
    for path_mtu in PathMtu::ALL {
        let mut world = World::pair();
        world.keep_timeline(true);
        let ends = connect(&mut world, [0, 1], Options { path_mtu, ..DEFAULT });
        for kind in [Kind::Send, Kind::Write] {
            let exchange = Exchange::post(&mut world, ends, kind, 3 * path_mtu.bytes() + 1, 1);
            world.settle();
            exchange.check(&world);
        }
        for sent in &world.sent(0) {
            let headers = sent.headers();
            let payload = sent.packet.len() - headers.len();
            if headers.bth.opcode.info().position.opens() {
                assert_eq!(payload, path_mtu.bytes());
            } else {
                assert_eq!((payload, headers.bth.pad.bytes()), (4, 3));
            }
        }
    }
}
