//! How many READs and atomics may be on their way.

use std::time::Duration;

use roce_sim::LinkConfig;
use roce_transport::{CompletionStatus, QpState};
use roce_wire::Operation;

use crate::common::connection::{Options, connect, connect_each};
use crate::common::exchange::{Exchange, Kind};
use crate::common::world::{World, WorldConfig};

#[test]
fn no_more_reads_and_atomics_are_on_their_way_than_the_depth_allows() {
    for depth in [1, 2, 3, 4, 16] {
        for kind in [Kind::Read, Kind::FetchAdd, Kind::CompareSwap] {
            let link = LinkConfig::with_latency(Duration::from_micros(100));
            let mut world = World::new(2, WorldConfig { link, ..WorldConfig::default() });
            world.nodes[0].keep_sent = true;
            let options =
                Options { max_rd_atomic: depth, max_dest_rd_atomic: depth, ..Options::default() };
            let ends = connect(&mut world, [0, 1], options);
            let exchange = Exchange::post(&mut world, ends, kind, 700, 40);
            let mut most = 0;
            loop {
                let requests = world.nodes[0]
                    .sent
                    .iter()
                    .filter(|it| it.opcode().shape().operation != Operation::Acknowledge);
                let outstanding = requests.count() - ends[0].sent(&world).len();
                most = most.max(outstanding);
                assert!(outstanding <= usize::from(depth), "{}", world.report());
                if !world.step() {
                    break;
                }
            }
            exchange.check(&world);
            assert_eq!(most, usize::from(depth), "and the depth is used");
        }
    }
}

#[test]
fn a_depth_of_zero_at_the_responder_makes_every_read_and_atomic_an_invalid_request() {
    for kind in [Kind::Read, Kind::FetchAdd, Kind::CompareSwap] {
        let mut world = World::pair();
        let options = Options::default();
        let none = Options { max_dest_rd_atomic: 0, ..options };
        let ends = connect_each(&mut world, [0, 1], [options, none]);
        let exchange = Exchange::post(&mut world, ends, kind, 100, 1);
        world.settle();
        let status = ends[0].sent(&world)[0].status;
        assert_eq!(status, CompletionStatus::RemoteInvalidRequest, "{}", world.report());
        assert_eq!(ends[0].state(&world), QpState::Error);
        assert_eq!(world.nodes[1].memory.atomics_executed, 0);
        drop(exchange);
    }
}

#[test]
fn reads_behind_writes_do_not_overtake_and_writes_behind_reads_are_not_held_up_by_the_depth() {
    let mut world = World::pair();
    let options = Options { max_rd_atomic: 1, ..Options::default() };
    let ends = connect(&mut world, [0, 1], options);
    let mut exchanges = vec![];
    for round in 0..10 {
        for kind in [Kind::Write, Kind::Read, Kind::FetchAdd, Kind::Send] {
            exchanges.push(Exchange::post(&mut world, ends, kind, 100 * round, 2));
        }
    }
    world.settle();
    exchanges.iter().for_each(|exchange| exchange.check(&world));
}
