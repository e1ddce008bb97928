//! A dead peer: the ACK timeout, the retry budget, and what is left when it is spent.

use std::time::Duration;

use roce_fabric::{Fate, Impairment};
use roce_transport::{CompletionStatus, QpState};

use crate::common::connection::{DEFAULT, Options, connect, timeout};
use crate::common::exchange::{Exchange, Kind};
use crate::common::world::World;

/// Everything that a node sends from now on is lost.
fn isolate(world: &mut World, node: usize) {
    world.set_impairment(node, Impairment::scripted(vec![Fate::Drop; 100_000]));
}

//= test rc-retries
#[test]
fn a_dead_peer_is_given_up_between_one_and_four_times_the_ack_timeouts() {
    for retry_count in 0..=7u8 {
        for ack_timeout in [1, 8, 14, 20, 31] {
            for kind in [Kind::Send, Kind::Write, Kind::Read, Kind::FetchAdd] {
                let mut world = World::pair();
                let options = Options { retry_count, ack_timeout: timeout(ack_timeout), ..DEFAULT };
                let ends = connect(&mut world, [0, 1], options);
                isolate(&mut world, 0);
                let exchange = Exchange::post(&mut world, ends, kind, 300, 3);
                world.run_until(|world| exchange.is_done(world) || !ends[0].sent(world).is_empty());
                let took = Duration::from_nanos(world.now().as_nanos());
                let timer = Duration::from_nanos(4096 << ack_timeout);
                let least = timer * (u32::from(retry_count) + 1);
                let named = format!("retries {retry_count}, timer {timer:?}: took {took:?}");
                assert!(took >= least && took <= least * 4, "{named}\n{}", world.report());
                let statuses: Vec<_> = ends[0].sent(&world).iter().map(|it| it.status).collect();
                let flushed = CompletionStatus::WorkRequestFlushed;
                assert_eq!(statuses, [CompletionStatus::RetryExceeded, flushed, flushed]);
                assert_eq!(ends[0].state(&world), QpState::Error);
                assert_eq!(ends[0].counter(&world, "retry_exceeded_err"), 1);
                world.settle();
                assert_eq!(ends[0].sent(&world).len(), 3, "and nothing more comes");
            }
        }
    }
}

#[test]
fn a_peer_that_dies_in_the_middle_of_a_message_is_given_up_in_the_same_time() {
    for kind in [Kind::Send, Kind::Write, Kind::Read] {
        let mut world = World::pair();
        let options = Options { retry_count: 6, ack_timeout: timeout(10), ..DEFAULT };
        let ends = connect(&mut world, [0, 1], options);
        let exchange = Exchange::post(&mut world, ends, kind, 200_000, 3);
        while world.hosts[1].memory.bytes_written() + world.hosts[0].memory.bytes_written() < 50_000
        {
            assert!(world.step());
        }
        isolate(&mut world, 1);
        let died = world.now();
        world.run_until(|world| exchange.is_done(world) || !ends[0].sent(world).is_empty());
        let took = Duration::from_nanos(world.now().as_nanos() - died.as_nanos());
        let least = Duration::from_nanos(4096 << 10) * 7;
        // The dying breath may still have been under way.
        assert!(took >= least && took <= least * 4 + Duration::from_millis(1), "{took:?}");
        assert_eq!(ends[0].sent(&world)[0].status, CompletionStatus::RetryExceeded);
        world.settle();
        assert_eq!(ends[0].sent(&world).len(), 3);
        world.assert_guards_untouched();
    }
}

//= test rc-ack-timeout-never
#[test]
fn a_timeout_of_zero_waits_for_ever() {
    let mut world = World::pair();
    let options = Options { ack_timeout: timeout(0), ..DEFAULT };
    let ends = connect(&mut world, [0, 1], options);
    isolate(&mut world, 0);
    Exchange::post(&mut world, ends, Kind::Send, 300, 1);
    world.settle();
    assert_eq!(ends[0].sent(&world), []);
    assert_eq!(world.hosts[0].endpoint.poll_timeout(), None, "and asks for no wake-up");
}

//= test rc-retries-reset
#[test]
fn progress_gives_the_retries_back() {
    // Each of 20 packets is lost once; one retry in a row is all that is ever needed.
    for kind in [Kind::Send, Kind::Write, Kind::Read] {
        let mut world = World::pair();
        let options = Options { retry_count: 2, ..DEFAULT };
        let ends = connect(&mut world, [0, 1], options);
        let alternating = || (0..40).map(|i| if i % 2 == 0 { Fate::Drop } else { Fate::Pass });
        world.set_impairment(0, Impairment::scripted(alternating()));
        let mut exchanges = vec![];
        for _ in 0..20 {
            let exchange = Exchange::post(&mut world, ends, kind, 100, 1);
            world.run_until(|world| exchange.is_done(world));
            exchanges.push(exchange);
        }
        exchanges.iter().for_each(|exchange| exchange.check(&world));
    }
}

#[test]
fn an_idle_connection_has_no_timer() {
    let mut world = World::pair();
    let ends = connect(&mut world, [0, 1], DEFAULT);
    for kind in Kind::ALL {
        let exchange = Exchange::post(&mut world, ends, kind, 1000, 2);
        world.run_until(|world| exchange.is_done(world));
    }
    world.settle();
    for node in &world.hosts {
        assert_eq!(node.endpoint.poll_timeout(), None);
    }
}

//= test rc-go-back-n
#[test]
fn a_lost_packet_with_others_behind_it_is_sent_again_without_waiting_for_the_timer() {
    let mut world = World::pair();
    let options = Options { ack_timeout: timeout(20), ..DEFAULT }; // over four seconds
    let ends = connect(&mut world, [0, 1], options);
    world.set_impairment(0, Impairment::scripted([Fate::Pass, Fate::Drop]));
    let exchange = Exchange::post(&mut world, ends, Kind::Write, 5000, 1);
    world.run_until(|world| exchange.is_done(world));
    exchange.check(&world);
    assert!(world.now().as_nanos() < 1_000_000, "{}", world.report());
    assert_eq!(ends[0].counter(&world, "rcvd_seq_err"), 1);
    assert!(ends[1].counter(&world, "out_of_seq_request") >= 1);
}

#[test]
fn a_lost_response_with_others_behind_it_is_requested_again_without_a_timer() {
    let mut world = World::pair();
    let options = Options { ack_timeout: timeout(20), ..DEFAULT };
    let ends = connect(&mut world, [0, 1], options);
    world.set_impairment(1, Impairment::scripted([Fate::Pass, Fate::Drop]));
    let exchange = Exchange::post(&mut world, ends, Kind::Read, 5000, 1);
    world.run_until(|world| exchange.is_done(world));
    exchange.check(&world);
    assert!(world.now().as_nanos() < 1_000_000, "{}", world.report());
}

//= test rc-implied-nak
#[test]
fn a_lost_response_with_an_ack_behind_it_is_requested_again_without_a_timer() {
    for kind in [Kind::Read, Kind::FetchAdd, Kind::CompareSwap] {
        let mut world = World::pair();
        let options = Options { ack_timeout: timeout(20), ..DEFAULT };
        let ends = connect(&mut world, [0, 1], options);
        world.set_impairment(1, Impairment::scripted([Fate::Drop]));
        let lost = Exchange::post(&mut world, ends, kind, 100, 1);
        let behind = Exchange::post(&mut world, ends, Kind::Write, 100, 1);
        world.run_until(|world| lost.is_done(world) && behind.is_done(world));
        lost.check(&world);
        behind.check(&world);
        assert!(world.now().as_nanos() < 1_000_000, "{kind:?}\n{}", world.report());
    }
}
