//! Time in which a driver does not run: it proves nothing about the peer.

use std::time::Duration;

use roce_fabric::LinkConfig;
use roce_simnet::Driver;
use roce_transport::{CompletionStatus, Instant, QpState};

use crate::common::connection::{DEFAULT, End, Options, connect, timeout};
use crate::common::exchange::{Exchange, Kind};
use crate::common::world::{World, WorldConfig, test_config};

/// Kinds that the peer answers in each of the ways that there are.
const KINDS: [Kind; 4] = [Kind::Send, Kind::Write, Kind::Read, Kind::FetchAdd];

const OPTIONS: Options = Options { ack_timeout: timeout(14), ..DEFAULT };

/// The time after which a dead peer is given up: the ACK timeout for each try.
fn bound(options: Options) -> Duration {
    Duration::from_nanos(4096 << options.ack_timeout.exponent())
        * (u32::from(options.retry_count) + 1)
}

/// A round trip of 20 µs, and a connection that has measured it.
fn connected(options: Options) -> (World, [End; 2]) {
    let link = LinkConfig::with_latency(Duration::from_micros(10));
    let mut world = World::new(2, WorldConfig { link, ..test_config() });
    let ends = connect(&mut world, [0, 1], options);
    for _ in 0..4 {
        let exchange = Exchange::post(&mut world, ends, Kind::Write, 100, 1);
        world.run_until(|world| exchange.is_done(world));
    }
    (world, ends)
}

fn stop(world: &mut World, node: usize, span: Duration) {
    world.hosts[node].driver.stopped_until = world.now() + span;
}

#[test]
fn a_peer_that_is_stopped_for_half_the_bound_fails_nothing() {
    for kind in KINDS {
        let (mut world, ends) = connected(OPTIONS);
        stop(&mut world, 1, bound(OPTIONS) / 2);
        let exchange = Exchange::post(&mut world, ends, kind, 3000, 3);
        world.run_until(|world| exchange.is_done(world));
        exchange.check(&world);
    }
}

#[test]
fn a_peer_that_is_stopped_for_three_times_the_bound_is_given_up_at_the_bound() {
    for kind in KINDS {
        let (mut world, ends) = connected(OPTIONS);
        stop(&mut world, 1, bound(OPTIONS) * 3);
        let before = ends[0].sent(&world).len();
        let began = world.now();
        Exchange::post(&mut world, ends, kind, 3000, 3);
        world.run_until(|world| ends[0].sent(world).len() > before);
        let took = world.now().saturating_since(began);
        assert_eq!(ends[0].sent(&world)[before].status, CompletionStatus::RetryExceeded);
        let (least, most) = (bound(OPTIONS), bound(OPTIONS) + Duration::from_millis(1));
        assert!((least..=most).contains(&took), "{kind:?}: {took:?}");
    }
}

#[test]
fn a_driver_stopped_for_three_times_the_bound_fails_no_request() {
    // At any moment of an exchange: before anything is answered, and in the middle.
    for kind in KINDS {
        for after in [0, 5, 15, 25, 100, 190, 250] {
            let (mut world, ends) = connected(OPTIONS);
            let exchange = Exchange::post(&mut world, ends, kind, 3000, 20);
            world.run_for(Duration::from_micros(after));
            stop(&mut world, 0, bound(OPTIONS) * 3);
            world.run_until(|world| exchange.is_done(world));
            exchange.check(&world);
            for counter in ["ack_timeout", "completer_retry_err", "resent_pkts"] {
                let count = ends[0].counter(&world, counter);
                assert_eq!(count, 0, "{kind:?} after {after} µs: {counter}\n{}", world.report());
            }
        }
    }
}

#[test]
fn a_request_that_was_written_and_not_sent_before_the_driver_was_stopped_has_its_whole_time() {
    // Without any retry, and with ACK timeouts from a millisecond on.
    for kind in KINDS {
        for ack_timeout in [8, 10, 14] {
            let options = Options { ack_timeout: timeout(ack_timeout), retry_count: 0, ..DEFAULT };
            let (mut world, ends) = connected(options);
            stop(&mut world, 0, bound(options) * 3 + Duration::from_millis(10));
            let exchange = Exchange::post(&mut world, ends, kind, 3000, 3);
            world.run_until(|world| exchange.is_done(world));
            exchange.check(&world);
            for counter in ["ack_timeout", "resent_pkts"] {
                assert_eq!(ends[0].counter(&world, counter), 0, "{kind:?}: {counter}");
            }
        }
    }
}

#[test]
fn a_late_probe_timeout_resends_nothing_that_was_acknowledged() {
    // From a scheduler's shortest slice on.
    for millis in [2, 4, 10, 50] {
        let (mut world, ends) = connected(OPTIONS);
        for _ in 0..100 {
            stop(&mut world, 0, Duration::from_millis(millis));
            let exchange = Exchange::post(&mut world, ends, Kind::Write, 3000, 1);
            world.run_until(|world| exchange.is_done(world));
            // It runs for a while; a deadline is put off only once.
            world.run_for(Duration::from_millis(1));
        }
        for counter in ["tail_probe", "probe_timeout", "resent_pkts"] {
            assert_eq!(ends[0].counter(&world, counter), 0, "{millis} ms: {counter}");
        }
    }
}

#[test]
fn a_driver_that_is_starved_all_the_time_fails_no_request_to_a_peer_that_lives() {
    // With ACK timeouts far shorter than it waits for a processor, and no retry.
    for period in [20, 35, 50] {
        for ack_timeout in [6, 8, 10, 14] {
            let options = Options { ack_timeout: timeout(ack_timeout), retry_count: 0, ..DEFAULT };
            for kind in KINDS {
                let (mut world, ends) = connected(options);
                world.hosts[0].driver.starved = Some(starved(period));
                for count in [1, 3, 10, 30] {
                    let exchange = Exchange::post(&mut world, ends, kind, 3000, count);
                    world.run_until(|world| exchange.is_done(world));
                    exchange.check(&world);
                }
            }
        }
    }
}

#[test]
fn two_drivers_that_are_starved_fail_nothing_within_the_usual_bound() {
    for (one, other) in [(20, 50), (35, 20), (50, 49)] {
        let (mut world, ends) = connected(OPTIONS);
        world.hosts[0].driver.starved = Some(starved(one));
        world.hosts[1].driver.starved = Some(starved(other));
        let exchanges = KINDS.map(|kind| Exchange::post(&mut world, ends, kind, 3000, 30));
        world.run_until(|world| exchanges.iter().all(|it| it.is_done(world)));
        exchanges.iter().for_each(|it| it.check(&world));
        assert_eq!(ends[0].state(&world), QpState::ReadyToSend);
    }
}

#[test]
fn a_driver_that_is_starved_all_the_time_gives_up_a_dead_peer_in_bounded_running_time() {
    for period in [20, 35, 50] {
        for (ack_timeout, retry_count) in [(8, 7), (14, 0), (14, 7)] {
            let options = Options { ack_timeout: timeout(ack_timeout), retry_count, ..DEFAULT };
            let (mut world, ends) = connected(options);
            world.hosts[1].driver.stopped_until = Driver::FOR_EVER;
            world.hosts[0].driver.starved = Some(starved(period));
            let before = ends[0].sent(&world).len();
            let began = world.now();
            Exchange::post(&mut world, ends, Kind::Write, 3000, 3);
            world.run_until(|world| ends[0].sent(world).len() > before);
            assert_eq!(ends[0].sent(&world)[before].status, CompletionStatus::RetryExceeded);
            let took = world.now().saturating_since(began);
            // It ran for a millisecond in each period, and each deadline took it two at most.
            let running = took / period;
            let most = bound(options) + Duration::from_millis(2) * 20 * u32::from(retry_count + 1);
            assert!(running <= most, "{options:?}, every {period} ms: {took:?}, ran {running:?}");
        }
    }
}

#[test]
fn responses_that_wait_behind_many_others_are_handled_before_a_timer_fires() {
    // What the socket holds is taken in 32 frames at a time; here a frame at a time, and slowly.
    let config = WorldConfig {
        link: LinkConfig {
            latency: Duration::from_micros(10),
            bits_per_sec: Some(8_000_000_000),
            queue_frames: usize::MAX,
        },
        batch: 1,
        timers_between_batches: true,
        ..test_config()
    };
    let mut world = World::new(2, config);
    let ends = connect(&mut world, [0, 1], Options { retry_count: 0, ..OPTIONS });
    let exchange = Exchange::post(&mut world, ends, Kind::Read, 100_000, 1);
    world.run_for(Duration::from_micros(12));
    stop(&mut world, 0, Duration::from_secs(2));
    world.run_until(|world| exchange.is_done(world));
    exchange.check(&world);
    assert_eq!(ends[0].counter(&world, "resent_pkts"), 0);
}

#[test]
fn the_clock_of_a_driver_that_slept_with_nothing_to_do_has_run_on() {
    let (mut world, ends) = connected(OPTIONS);
    world.settle();
    stop(&mut world, 0, Duration::from_secs(10));
    world.run_for(Duration::from_secs(10));
    let exchange = Exchange::post(&mut world, ends, Kind::Write, 100, 1);
    let began = world.now();
    world.run_until(|world| exchange.is_done(world));
    assert!(world.now().saturating_since(began) < Duration::from_micros(30));
    assert!(world.hosts[0].endpoint.poll_timeout().is_none_or(|at| at > began));
    assert!(began > Instant::from_nanos(10_000_000_000));
}

fn starved(period: u32) -> (Duration, Duration) {
    (Duration::from_millis(period.into()), Duration::from_millis(1))
}
