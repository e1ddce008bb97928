//! Requests that defer their ACK: AckReq is rare, and in time.

use std::time::Duration;

use roce_fabric::{Fate, Impairment, LinkConfig};
use roce_transport::{QpCap, QpState, SendWr};

use crate::common::connection::{DEFAULT, End, Options, RECV_CQ, connect, timeout};
use crate::common::exchange::{Exchange, Kind};
use crate::common::world::{World, WorldConfig, test_config};

/// Longer than a round trip of the world, shorter than any timer.
const PACE: Duration = Duration::from_micros(50);

fn pair(max_send_wr: u32) -> (World, [End; 2]) {
    let mut world = World::pair();
    world.keep_timeline(true);
    let capacities = QpCap { max_send_wr, ..DEFAULT.cap };
    let ends =
        connect(&mut world, [0, 1], Options { cap: capacities, signal_all: false, ..DEFAULT });
    (world, ends)
}

fn lazy(exchange: &Exchange, i: usize) -> SendWr {
    SendWr { signaled: false, defer_ack: true, ..exchange.send_work(i) }
}

fn asked(world: &World) -> usize {
    world.sent(0).iter().filter(|it| it.headers().bth.ack_request).count()
}

fn received(world: &World, ends: [End; 2]) -> usize {
    let all = world.hosts[1].completions.iter();
    all.filter(|(cq, it)| *cq == RECV_CQ && it.qpn == ends[1].qpn).count()
}

#[test]
fn few_acks_are_requested_and_the_send_queue_never_fills() {
    for depth in [4, 16, 256] {
        let (mut world, ends) = pair(depth);
        let exchange = Exchange::prepare(&mut world, ends, Kind::WriteImmediate, 4, 200);
        exchange.post_receives(&mut world);
        for i in 0..200 {
            // Refused if the queue were full.
            ends[0].post_send(&mut world, lazy(&exchange, i));
            assert_eq!(world.sent(0).len(), i + 1, "it leaves at once\n{}", world.report());
            world.run_for(Duration::from_micros(2));
        }
        world.settle();
        assert_eq!(received(&world, ends), 200);
        let most = 2 * 200 / depth as usize + 20;
        assert!(asked(&world) <= most, "{} of 200, depth {depth}", asked(&world));
        assert_eq!(world.counter(1, "send_rnr_err"), 0);
    }
}

#[test]
fn packets_of_a_train_request_acks_as_rarely_as_single_packets() {
    let (mut world, ends) = pair(256);
    let exchange = Exchange::prepare(&mut world, ends, Kind::Write, 4, 100);
    for first in (0..100).step_by(5) {
        world.with(0, |node, now| {
            for i in first..first + 5 {
                node.endpoint.post_send(now, ends[0].qpn, lazy(&exchange, i)).unwrap();
            }
        });
        world.run_for(Duration::from_micros(2));
    }
    assert_eq!(world.sent(0).len(), 100);
    // As often as the window and the peer's queue want it.
    assert!(asked(&world) <= 4, "{} of 100", asked(&world));
}

#[test]
fn an_ack_is_requested_before_the_receives_of_the_peer_run_out() {
    for receives in [2, 3, 4, 8, 12] {
        let (mut world, ends) = pair(256);
        let exchange = Exchange::prepare(&mut world, ends, Kind::WriteImmediate, 4, 100);
        (0..receives).for_each(|i| exchange.post_receive(&mut world, i));
        // The first answer tells how many there are.
        ends[0].post_send(&mut world, exchange.send_work(0));
        world.run_for(PACE);
        for i in 1..100 {
            if i + receives - 1 < 100 {
                exchange.post_receive(&mut world, i + receives - 1);
            }
            let before = world.sent(0).len();
            ends[0].post_send(&mut world, lazy(&exchange, i));
            assert_eq!(world.sent(0).len(), before + 1, "message {i} of {receives} waits");
            world.run_for(PACE);
            assert_eq!(received(&world, ends), i + 1, "{}", world.report());
        }
        assert_eq!(ends[0].counter(&world, "tail_probe"), 0, "{}", world.report());
    }
}

#[test]
fn a_loss_is_found_though_acks_are_deferred_and_nothing_follows() {
    let (mut world, ends) = pair(256);
    let exchange = Exchange::prepare(&mut world, ends, Kind::WriteImmediate, 4, 2);
    exchange.post_receives(&mut world);
    world.set_impairment(0, Impairment::scripted([Fate::Pass, Fate::Drop]));
    for i in 0..2 {
        ends[0].post_send(&mut world, lazy(&exchange, i));
        world.run_for(Duration::from_micros(2));
    }
    world.settle();
    assert_eq!(received(&world, ends), 2, "{}", world.report());
}

#[test]
fn a_request_that_reports_its_success_is_never_lazy() {
    let (mut world, ends) = pair(256);
    let exchange = Exchange::prepare(&mut world, ends, Kind::Write, 4, 1);
    ends[0].post_send(&mut world, SendWr { defer_ack: true, ..exchange.send_work(0) });
    world.run_for(PACE);
    exchange.check(&world);
    assert_eq!(asked(&world), 1);
}

#[test]
fn without_an_ack_timeout_no_ack_is_deferred() {
    let mut world = World::pair();
    world.keep_timeline(true);
    let options = Options { signal_all: false, ack_timeout: timeout(0), ..DEFAULT };
    let ends = connect(&mut world, [0, 1], options);
    let exchange = Exchange::prepare(&mut world, ends, Kind::WriteImmediate, 4, 5);
    exchange.post_receives(&mut world);
    (0..5).for_each(|i| ends[0].post_send(&mut world, lazy(&exchange, i)));
    world.run_for(PACE);
    assert_eq!((asked(&world), world.sent(0).len()), (5, 5));
}

#[test]
fn a_peer_of_which_no_ack_was_requested_is_not_given_up() {
    // No retry is allowed, and the ACK timer is shorter than the wait before anything is measured.
    for pause in [1, 300, 900] {
        let mut world = World::pair();
        let options = Options { signal_all: false, retry_count: 0, ..DEFAULT };
        let ends = connect(&mut world, [0, 1], options);
        let exchange = Exchange::prepare(&mut world, ends, Kind::WriteImmediate, 4, 40);
        exchange.post_receives(&mut world);
        for i in 0..40 {
            ends[0].post_send(&mut world, lazy(&exchange, i));
            world.run_for(Duration::from_micros(pause));
        }
        world.settle();
        assert_eq!(ends[0].state(&world), QpState::ReadyToSend, "{pause}\n{}", world.report());
        assert_eq!(received(&world, ends), 40);
        assert_eq!(ends[0].counter(&world, "ack_timeout"), 0, "{pause}\n{}", world.report());
    }
}

#[test]
fn a_late_ack_request_leaves_the_peer_as_much_time_as_an_early_one() {
    // About a millisecond; the first question comes shortly before it is over, or never.
    for asks in [true, false] {
        let mut world = World::pair();
        let options = Options { signal_all: false, retry_count: 0, ..DEFAULT };
        let ends = connect(&mut world, [0, 1], options);
        let exchange = Exchange::prepare(&mut world, ends, Kind::Write, 4, 2);
        ends[0].post_send(&mut world, lazy(&exchange, 0));
        world.run_for(Duration::from_micros(1047));
        if asks {
            let work = SendWr { signaled: true, ..exchange.send_work(1) };
            ends[0].post_send(&mut world, work);
        }
        world.settle();
        assert_eq!(ends[0].state(&world), QpState::ReadyToSend, "{}", world.report());
        assert_eq!(ends[0].counter(&world, "tail_probe"), u64::from(!asks));
        assert_eq!(ends[0].counter(&world, "completer_retry_err"), 0, "{}", world.report());
    }
}

#[test]
fn a_dead_peer_is_given_up_in_time_however_many_deferred_acks_follow() {
    let timer = Duration::from_nanos(4096 << 8);
    for retry_count in [0, 1, 3] {
        for pace in [10, 50, 180, 700] {
            let mut world = World::pair();
            let options = Options { signal_all: false, retry_count, ..DEFAULT };
            let ends = connect(&mut world, [0, 1], options);
            let first = Exchange::prepare(&mut world, ends, Kind::Write, 4, 1);
            let work = SendWr { signaled: true, ..first.send_work(0) };
            ends[0].post_send(&mut world, work);
            world.run_until(|world| first.is_done(world));
            world.set_impairment(0, Impairment::scripted(vec![Fate::Drop; 100_000]));
            let exchange = Exchange::prepare(&mut world, ends, Kind::Write, 4, 256);
            let began = world.now();
            for i in 0..256 {
                if ends[0].state(&world) == QpState::Error {
                    break;
                }
                ends[0].post_send(&mut world, lazy(&exchange, i));
                world.run_for(Duration::from_micros(pace));
            }
            world.run_until(|world| ends[0].state(world) == QpState::Error);
            let took = world.now().saturating_since(began);
            // One more until an ACK is requested.
            let most = timer * (u32::from(retry_count) + 2);
            let most = most + Duration::from_micros(pace);
            assert!(took <= most, "{took:?} of {most:?}, {retry_count} retries, every {pace} µs");
        }
    }
}

/// A connection with a timer of four seconds that has measured its round trip of 20 µs.
fn measured() -> (World, [End; 2]) {
    measured_with(Options { ack_timeout: timeout(20), ..DEFAULT })
}

fn measured_with(options: Options) -> (World, [End; 2]) {
    let link = LinkConfig::with_latency(Duration::from_micros(10));
    let mut world = World::new(2, WorldConfig { link, ..test_config() });
    let options = Options { signal_all: false, ..options };
    let ends = connect(&mut world, [0, 1], options);
    for _ in 0..4 {
        let exchange = Exchange::prepare(&mut world, ends, Kind::Write, 100, 1);
        let work = SendWr { signaled: true, ..exchange.send_work(0) };
        ends[0].post_send(&mut world, work);
        world.run_until(|world| exchange.is_done(world));
    }
    (world, ends)
}

/// The short timer's wait on such a connection, and a round trip.
const SOON: Duration = Duration::from_micros(250);

#[test]
fn a_requested_ack_is_missed_in_time_however_many_deferred_acks_follow() {
    let (mut world, ends) = measured();
    let exchange = Exchange::prepare(&mut world, ends, Kind::Write, 4, 30);
    world.set_impairment(1, Impairment::scripted([Fate::Drop]));
    let (began, before) = (world.now(), ends[0].sent(&world).len());
    ends[0].post_send(&mut world, SendWr { signaled: true, ..exchange.send_work(0) });
    let mut i = 1;
    while ends[0].sent(&world).len() == before {
        world.run_for(PACE);
        ends[0].post_send(&mut world, lazy(&exchange, i));
        i += 1;
    }
    let took = world.now().saturating_since(began);
    assert!(took <= SOON + PACE, "{took:?}\n{}", world.report());
}

#[test]
fn the_last_of_a_flow_is_missed_one_wait_after_it_was_sent() {
    for count in 1..12 {
        let (mut world, ends) = measured();
        let exchange = Exchange::prepare(&mut world, ends, Kind::Write, 4, count);
        let before = world.counter(1, "rcvd_pkts") as usize;
        for i in 0..count {
            let fate = if i + 1 == count { Fate::Drop } else { Fate::Pass };
            world.set_impairment(0, Impairment::scripted([fate]));
            ends[0].post_send(&mut world, lazy(&exchange, i));
            if i + 1 < count {
                world.run_for(PACE);
            }
        }
        let began = world.now();
        world.run_until(|world| world.counter(1, "rcvd_pkts") as usize >= before + count);
        let took = world.now().saturating_since(began);
        assert!(took <= SOON, "{took:?} after {count}\n{}", world.report());
        assert_eq!(ends[0].counter(&world, "tail_probe"), 1);
    }
}

#[test]
fn what_is_lost_shortly_before_the_ack_timer_fires_is_found_by_the_short_one() {
    for late in [850, 900, 950, 1000, 1040] {
        let (mut world, ends) = measured_with(Options { retry_count: 0, ..DEFAULT });
        let exchange = Exchange::prepare(&mut world, ends, Kind::Write, 4, 30);
        let (began, mut count) = (world.now(), 0);
        let since = |world: &World| world.now().saturating_since(began);
        while since(&world) < Duration::from_micros(late) {
            ends[0].post_send(&mut world, lazy(&exchange, count));
            world.run_for(PACE);
            count += 1;
        }
        world.set_impairment(0, Impairment::scripted([Fate::Drop]));
        let work = SendWr { signaled: true, ..exchange.send_work(count) };
        let (began, before) = (world.now(), ends[0].sent(&world).len());
        ends[0].post_send(&mut world, work);
        world.run_until(|world| ends[0].sent(world).len() > before);
        assert_eq!(ends[0].state(&world), QpState::ReadyToSend, "{late}\n{}", world.report());
        let took = world.now().saturating_since(began);
        assert!(took <= SOON + PACE, "{took:?} at {late}\n{}", world.report());
    }
}

#[test]
fn a_queue_pair_that_defers_acks_gives_up_its_turn_as_others_do() {
    let config = WorldConfig { train_packets: 1, ..test_config() };
    let mut world = World::new(2, config);
    world.keep_timeline(true);
    let options = Options { signal_all: false, ..DEFAULT };
    let exchanges = [(); 2].map(|()| {
        let ends = connect(&mut world, [0, 1], options);
        Exchange::prepare(&mut world, ends, Kind::Write, 4, 40)
    });
    world.with(0, |node, now| {
        for exchange in &exchanges {
            for i in 0..40 {
                let qpn = exchange.from.qpn;
                node.endpoint.post_send(now, qpn, lazy(exchange, i)).unwrap();
            }
        }
    });
    let sent = world.sent(0).into_iter().map(|it| it.headers().bth.dest_qp);
    let sent: Vec<_> = sent.collect();
    let changes = sent.windows(2).filter(|it| it[0] != it[1]).count();
    assert!(changes >= 40, "{changes} changes of turn in {}", sent.len());
}
