//! Receiver not ready: the empty receive queue, the wait, the retry, the giving up.

use std::time::Duration;

use roce_fabric::{Fate, Impairment, ImpairmentRates, LinkConfig};
use roce_transport::{CompletionStatus, EndpointConfig, QpState, SendOperation, SendWr};
use roce_wire::{Psn, RnrTimer, Syndrome};

use crate::common::connection::{DEFAULT, FIRST_PSN, Options, connect, rnr_timer, timeout};
use crate::common::exchange::{Exchange, Kind, work};
use crate::common::world::{World, WorldConfig, test_config};

const RECEIVERS: [Kind; 4] =
    [Kind::Send, Kind::SendImmediate, Kind::SendInvalidate, Kind::WriteImmediate];

//= test rc-rnr-nak
//= test rc-write-takes-receive
#[test]
fn an_empty_receive_queue_holds_the_message_back_until_a_receive_is_posted() {
    for kind in RECEIVERS {
        let mut world = World::pair();
        let ends = connect(&mut world, [0, 1], DEFAULT);
        let exchange = Exchange::prepare(&mut world, ends, kind, 700, 3);
        exchange.post_sends(&mut world);
        world.run_for(Duration::from_millis(5));
        assert_eq!(ends[0].sent(&world), []);
        assert!(ends[1].counter(&world, "send_rnr_err") > 10, "{}", world.report());
        assert!(ends[0].counter(&world, "rcvd_rnr_err") > 10, "{}", world.report());
        // What follows the refused packet is not worth a word of its own.
        assert_eq!(ends[1].counter(&world, "send_seq_err"), 0, "{}", world.report());
        for i in 0..exchange.count {
            exchange.post_receive(&mut world, i);
            world.run_for(Duration::from_millis(1));
        }
        world.run_until(|world| exchange.is_done(world));
        exchange.check(&world);
    }
}

#[test]
fn losses_between_rnr_naks_do_not_add_up_until_the_retries_are_used_up() {
    let rates = ImpairmentRates { drop: 0.05, ..ImpairmentRates::default() };
    for seed in 0..10 {
        let mut world = World::pair();
        let ends = connect(&mut world, [0, 1], DEFAULT);
        // So that the round-trip time is known.
        let first = Exchange::post(&mut world, ends, Kind::Send, 10, 1);
        world.run_until(|world| first.is_done(world));
        let before = ends[0].sent(&world).len();
        for node in 0..2 {
            let seed = 2 * seed + node as u64;
            world.set_impairment(node, Impairment::random(seed, rates));
        }
        let exchange = Exchange::prepare(&mut world, ends, Kind::Send, 10, 1);
        exchange.post_sends(&mut world);
        world.run_for(Duration::from_millis(200));
        assert_eq!(ends[0].sent(&world).len(), before, "seed {seed}: {}", world.report());
        // A loss is noticed by a probe timeout each time.
        let (rnr, timeouts) =
            (ends[0].counter(&world, "rcvd_rnr_err"), ends[0].counter(&world, "ack_timeout"));
        assert!(rnr > 1000 && timeouts < rnr / 100, "seed {seed}: {}", world.report());
        exchange.post_receive(&mut world, 0);
        world.run_until(|world| exchange.is_done(world));
        exchange.check(&world);
    }
}

//= test rc-rnr-nak
#[test]
fn each_of_the_32_timer_codes_makes_the_sender_wait_its_own_time() {
    for code in 0..32 {
        let mut world = World::pair();
        // The retransmission timer must not speak before the RNR timer.
        let options =
            Options { min_rnr_timer: rnr_timer(code), ack_timeout: timeout(20), ..DEFAULT };
        let ends = connect(&mut world, [0, 1], options);
        world.keep_timeline(true);
        let exchange = Exchange::prepare(&mut world, ends, Kind::Send, 10, 1);
        exchange.post_sends(&mut world);
        world.run_until(|world| world.sent(0).len() == 3);
        let wait = RnrTimer::new(code).unwrap().duration();
        let nak = world.sent(1)[0].headers().aeth.unwrap();
        assert_eq!(nak.syndrome, Syndrome::RnrNak { timer: RnrTimer::new(code).unwrap() });
        let round_trip = Duration::from_micros(2);
        for pair in world.sent(0).windows(2) {
            let nanos = pair[1].at.as_nanos() - pair[0].at.as_nanos();
            let waited = Duration::from_nanos(nanos) - round_trip;
            // Never sooner; a little jitter later is fine.
            assert!(waited >= wait && waited <= wait + wait / 4, "code {code}: {waited:?}");
        }
    }
}

//= test rc-rnr-retries
#[test]
fn a_sender_gives_up_after_as_many_rnr_retries_as_it_was_allowed() {
    for rnr_retry in 0..7 {
        let mut world = World::pair();
        let ends = connect(&mut world, [0, 1], Options { rnr_retry, ..DEFAULT });
        for wr_id in 0..3 {
            let operation = SendOperation::Send { immediate: None, invalidate: None };
            ends[0].post_send(&mut world, SendWr { wr_id, ..work(operation) });
        }
        world.settle();
        let outcomes = [
            (0, CompletionStatus::RnrRetryExceeded),
            (1, CompletionStatus::WorkRequestFlushed),
            (2, CompletionStatus::WorkRequestFlushed),
        ];
        assert_eq!(ends[0].outcomes(&world), outcomes);
        assert_eq!(ends[0].counter(&world, "rcvd_rnr_err"), u64::from(rnr_retry) + 1);
        assert_eq!(ends[0].counter(&world, "retry_rnr_exceeded_err"), 1);
        assert_eq!(ends[0].state(&world), QpState::Error);
    }
}

//= test rc-rnr-retries
#[test]
fn seven_rnr_retries_mean_for_ever() {
    let mut world = World::pair();
    let ends = connect(&mut world, [0, 1], Options { min_rnr_timer: rnr_timer(12), ..DEFAULT });
    let exchange = Exchange::prepare(&mut world, ends, Kind::Send, 10, 1);
    exchange.post_sends(&mut world);
    world.run_for(Duration::from_secs(3));
    assert!(ends[0].counter(&world, "rcvd_rnr_err") > 3_000);
    exchange.post_receives(&mut world);
    world.run_until(|world| exchange.is_done(world));
    exchange.check(&world);
}

//= test rc-retries-reset
#[test]
fn progress_gives_a_sender_its_rnr_retries_back() {
    let mut world = World::pair();
    let ends = connect(&mut world, [0, 1], Options { rnr_retry: 2, ..DEFAULT });
    let exchange = Exchange::prepare(&mut world, ends, Kind::Send, 600, 6);
    exchange.post_sends(&mut world);
    for i in 0..exchange.count {
        // Long enough for one refusal, too short for three.
        world.run_for(Duration::from_micros(15));
        exchange.post_receive(&mut world, i);
        world.run_until(|world| ends[1].received(world).len() > i);
    }
    world.run_until(|world| exchange.is_done(world));
    exchange.check(&world);
    assert!(ends[0].counter(&world, "rcvd_rnr_err") >= 6, "{}", world.report());
}

#[test]
fn while_a_sender_waits_for_a_receive_the_other_direction_flows() {
    let mut world = World::pair();
    let options = Options { min_rnr_timer: rnr_timer(0), ..DEFAULT }; // 655 ms
    let ends = connect(&mut world, [0, 1], options);
    let held = Exchange::prepare(&mut world, ends, Kind::Send, 100, 1);
    held.post_sends(&mut world);
    world.run_for(Duration::from_millis(1));
    let back = Exchange::post(&mut world, [ends[1], ends[0]], Kind::Write, 5000, 5);
    world.run_for(Duration::from_millis(1));
    back.check(&world);
    held.post_receives(&mut world);
    world.run_until(|world| held.is_done(world));
    held.check(&world);
}

#[test]
fn a_refusal_that_arrives_twice_counts_once_and_prolongs_nothing() {
    let mut world = World::pair();
    world.keep_timeline(true);
    let options = Options { rnr_retry: 1, min_rnr_timer: rnr_timer(14), ..DEFAULT }; // 1.28 ms
    let ends = connect(&mut world, [0, 1], options);
    let copy = Fate::Duplicate(Duration::from_micros(500));
    world.set_impairment(1, Impairment::scripted([copy]));
    let exchange = Exchange::prepare(&mut world, ends, Kind::Send, 10, 1);
    exchange.post_sends(&mut world);
    world.run_for(Duration::from_millis(1));
    assert_eq!(ends[0].counter(&world, "rcvd_rnr_err"), 2);
    exchange.post_receives(&mut world);
    world.run_until(|world| exchange.is_done(world));
    exchange.check(&world);
    let again = world.sent(0)[1].at.as_nanos();
    assert!((1_282_000..1_700_000).contains(&again), "sent again at {again}");
}

/// A READ of 60 packets of which response `lost` is lost, and a SEND for which the receive comes late.
/// Returns when node 0 sent which packet, and how many bytes it requested.
fn rnr_nak_behind_a_lost_response(
    lost: i32,
    max_reorder_bytes: usize,
) -> Vec<(u64, i32, Option<u32>)> {
    let latency = Duration::from_micros(10);
    let link = LinkConfig { latency, bits_per_sec: Some(10_000_000_000), queue_frames: usize::MAX };
    let endpoint = EndpointConfig { max_reorder_bytes, ..EndpointConfig::default() };
    let mut world = World::new(2, WorldConfig { link, endpoint, ..test_config() });
    world.keep_timeline(true);
    // RNR NAKs ask for 80 µs.
    let options = Options { ack_timeout: timeout(14), min_rnr_timer: rnr_timer(6), ..DEFAULT };
    let ends = connect(&mut world, [0, 1], options);
    let fates = (0..60).map(|i| if i == lost { Fate::Drop } else { Fate::Pass });
    world.set_impairment(1, Impairment::scripted(fates));
    let read = Exchange::post(&mut world, ends, Kind::Read, 60 * 256, 1);
    let send = Exchange::prepare(&mut world, ends, Kind::Send, 256, 1);
    send.post_sends(&mut world);
    world.run_until(|world| read.is_done(world));
    read.check(&world);
    send.post_receives(&mut world);
    world.run_until(|world| send.is_done(world));
    send.check(&world);
    let first = Psn::new(FIRST_PSN).unwrap();
    let requests = world.sent(0).into_iter().map(|it| {
        let headers = it.headers();
        let len = headers.reth.map(|it| it.len);
        (it.at.as_nanos(), headers.bth.psn.distance_from(first), len)
    });
    requests.collect()
}

#[test]
fn an_rnr_nak_behind_a_missing_response_repeats_that_response_alone_and_then_waits() {
    // The RNR NAK alone shows that the last response is missing.
    for lost in [17, 59] {
        let requests = rnr_nak_behind_a_lost_response(lost, 4 << 20);
        let what: Vec<_> = requests.iter().map(|it| (it.1, it.2)).collect();
        let expected = [(0, Some(60 * 256)), (60, None), (lost, Some(256)), (60, None)];
        assert_eq!(what, expected, "{requests:?}");
        let repaired_after = requests[2].0;
        assert!(repaired_after < 50_000, "by no timer: {requests:?}");
        // The wait, and the 20 µs to the peer and back.
        let waited = requests[3].0 - repaired_after;
        assert!((100_000..102_000).contains(&waited), "{waited} ns: {requests:?}");
    }
}

#[test]
fn where_no_response_is_kept_an_rnr_nak_behind_a_missing_one_repeats_all_from_it_on() {
    let requests = rnr_nak_behind_a_lost_response(17, 0);
    assert_eq!((requests[2].1, requests[2].2), (17, Some(43 * 256)), "{requests:?}");
}
