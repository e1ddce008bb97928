//! How many READs and atomics may be on their way.

use std::time::Duration;

use roce_fabric::LinkConfig;
use roce_transport::{CompletionStatus, QpState};
use roce_wire::{NakCode, Operation, Psn, Reth, opcode};

use crate::common::connection::{DEFAULT, FIRST_PSN, Options, PD, connect, connect_each};
use crate::common::exchange::{Exchange, Kind};
use crate::common::forge;
use crate::common::world::{World, WorldConfig, test_config};
use roce_simnet::Rights;

//= test rc-read-depth
//= test rc-empty-response-depth
#[test]
fn no_more_reads_and_atomics_are_on_their_way_than_the_depth_allows() {
    for depth in [1, 2, 3, 4, 16] {
        for kind in Kind::COUNTED {
            let link = LinkConfig::with_latency(Duration::from_micros(100));
            let mut world = World::new(2, WorldConfig { link, ..test_config() });
            world.keep_timeline(true);
            let options = Options { max_rd_atomic: depth, max_dest_rd_atomic: depth, ..DEFAULT };
            let ends = connect(&mut world, [0, 1], options);
            let exchange = Exchange::post(&mut world, ends, kind, 700, 40);
            let mut most = 0;
            loop {
                let requests = world
                    .sent(0)
                    .into_iter()
                    .filter(|it| it.opcode().info().operation != Operation::Acknowledge);
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

//= test rc-no-responder-resources
#[test]
fn a_depth_of_zero_at_the_responder_makes_every_read_and_atomic_an_invalid_request() {
    for kind in Kind::COUNTED.into_iter().filter(|kind| *kind != Kind::Flush) {
        let mut world = World::pair();
        let options = DEFAULT;
        let none = Options { max_dest_rd_atomic: 0, ..options };
        let ends = connect_each(&mut world, [0, 1], [options, none]);
        let exchange = Exchange::post(&mut world, ends, kind, 100, 1);
        world.settle();
        let status = ends[0].sent(&world)[0].status;
        assert_eq!(status, CompletionStatus::RemoteInvalidRequest, "{}", world.report());
        assert_eq!(ends[0].state(&world), QpState::Error);
        assert_eq!(world.hosts[1].memory.atomics_executed(), 0);
        drop(exchange);
    }
}

//= test rc-too-many-reads
#[test]
fn a_peer_that_has_more_reads_on_its_way_than_agreed_is_refused() {
    let mut world = World::pair();
    world.keep_timeline(true);
    let ends = connect(&mut world, [0, 1], DEFAULT); // four at a time
    let region = world.hosts[1].memory.register_filled(PD, 100, Rights::ALL, 5);
    let reth = Reth { addr: region.addr, rkey: region.key, len: 100 };
    let first = Psn::new(FIRST_PSN).unwrap();
    let requests: Vec<_> =
        (0..6).map(|i| forge::read_request(ends[1].qpn, first.advanced_by(i), reth)).collect();
    world.forge_batch(0, 1, &requests);
    let answers: Vec<_> = world.sent(1).iter().map(|it| (it.opcode(), it.headers())).collect();
    let (refusal, answers) = answers.split_last().unwrap();
    assert_eq!(answers.len(), 4, "{}", world.report());
    assert!(answers.iter().all(|(opcode, _)| *opcode == opcode::RC_READ_RESPONSE_ONLY));
    assert_eq!(refusal.1.bth.psn, first.advanced_by(4));
    assert_eq!(refusal.1.aeth.unwrap().syndrome, forge::nak(NakCode::InvalidRequest));
    assert_eq!(ends[1].state(&world), QpState::Error);
}

#[test]
fn reads_behind_writes_do_not_overtake_and_writes_behind_reads_are_not_held_up_by_the_depth() {
    let mut world = World::pair();
    let options = Options { max_rd_atomic: 1, ..DEFAULT };
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
