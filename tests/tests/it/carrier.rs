//! An interface that loses its carrier: every request ends in time, traffic to the own host goes
//! on, and no processor time is spent on waiting.

use roce_test_macros::tier1;
use std::time::{Duration, Instant};

use roce_tests::fixtures::{COMPLETION_TIMEOUT, Cable, connect, contents};
use roce_tests::outage::{
    ConnectTimes, LONG, SHORT, USUAL, Waiter, Waiting, cpu_time, post_write, print_row,
    wait_for_port, write_through,
};
use roce_verbs::{CompletionStatus, PortState, QueuePair};

const FAR: usize = 16;

/// Takes the carrier away from the left end, and waits until the kernel says so.
fn cut(cable: &Cable, left: &Waiter) {
    cable.right.set_down("eth0").unwrap();
    wait_for_port(&left.end.device, PortState::Down);
}

#[tier1]
fn every_request_in_flight_ends_when_the_carrier_goes_and_the_local_one_at_once() {
    for (waiting, times) in
        [(Waiting::Polling, SHORT), (Waiting::Sleeping, SHORT), (Waiting::Polling, USUAL)]
    {
        let cable = Cable::with_mtu(1500);
        let (left, right) = Waiter::and_peer(&cable, waiting);
        let options = times.options();
        let far: Vec<(QueuePair, QueuePair)> =
            (0..FAR).map(|_| connect(&left.end, &right, &options)).collect();
        let (near, _itself) = connect(&left.end, &left.end, &options);
        let (ours, theirs) = (left.end.region(64, 1), right.region(64, 2));
        let own = left.end.region(64, 3);
        write_through(&left, &far[0].0, &ours, &theirs);
        cable.right.set_down("eth0").unwrap();
        for (number, (here, _)) in (0..).zip(&far) {
            post_write(here, number, &ours, &theirs);
        }
        post_write(&near, 99, &ours, &own);
        let ended = left.collect(FAR + 1, times.limit());
        assert_eq!(ended.len(), FAR + 1, "of {} requests: {ended:?}", FAR + 1);
        let (local, far): (Vec<_>, Vec<_>) = ended.iter().copied().partition(|it| it.wr_id == 99);
        assert_eq!(local[0].status, CompletionStatus::Success);
        assert_eq!(contents(&own)[..32], contents(&ours)[..32]);
        for it in &far {
            assert_eq!(it.status, CompletionStatus::RetryExceeded, "{ended:?}");
        }
        let last = far.iter().map(|it| it.after).max().unwrap();
        let what = format!("{waiting:?}: 16 requests, carrier lost");
        print_row(&what, times.bound(), last);
        print_row("the local request meanwhile", LOCAL_LIMIT, local[0].after);
        assert!(local[0].after < LOCAL_LIMIT, "{ended:?}");
    }
}

/// A request to the own host takes microseconds; a busy machine may take away the processor.
const LOCAL_LIMIT: Duration = Duration::from_millis(50);

#[tier1]
fn a_request_that_is_posted_without_a_carrier_ends_in_time_and_so_do_those_behind_it() {
    for (waiting, times) in [(Waiting::Sleeping, USUAL), (Waiting::Polling, SHORT)] {
        let cable = Cable::with_mtu(1500);
        let (left, right) = Waiter::and_peer(&cable, waiting);
        let (here, _there) = connect(&left.end, &right, &times.options());
        let (ours, theirs) = (left.end.region(64, 1), right.region(64, 2));
        cut(&cable, &left);
        (1..=20).for_each(|number| post_write(&here, number, &ours, &theirs));
        let ended = left.collect(20, times.limit());
        print_row(
            &format!("{waiting:?}: WRITE posted without carrier"),
            times.bound(),
            ended.first().map(|it| it.after),
        );
        assert_eq!(ended.len(), 20, "{ended:?}");
        assert_eq!(ended[0].status, CompletionStatus::RetryExceeded);
        assert!(ended[1..].iter().all(|it| it.status == CompletionStatus::WorkRequestFlushed));
        let dropped = left.end.device.counter("socket_sent_no_carrier").unwrap();
        let stalled = left.end.device.counter("socket_sent_stalled").unwrap();
        if left.end.learns_of_drops() {
            assert!(dropped + stalled > 0, "{:?}", left.end.device.counters());
        } else {
            assert_eq!(dropped + stalled, 0, "the kernel does not tell");
        }
    }
}

#[tier1]
fn traffic_goes_on_by_itself_when_the_carrier_comes_back() {
    for (waiting, outage) in [(Waiting::Sleeping, 3000), (Waiting::Polling, 500)] {
        let outage = Duration::from_millis(outage);
        let cable = Cable::with_mtu(1500);
        let (left, right) = Waiter::and_peer(&cable, waiting);
        let (here, _there) = connect(&left.end, &right, &LONG.options());
        let (ours, theirs) = (left.end.region(64, 1), right.region(64, 2));
        cut(&cable, &left);
        let ended = std::thread::scope(|scope| {
            post_write(&here, 1, &ours, &theirs);
            let (right, began) = (&cable.right, Instant::now());
            scope.spawn(move || {
                std::thread::sleep(outage.saturating_sub(began.elapsed()));
                right.set_up("eth0").unwrap();
            });
            left.collect(1, COMPLETION_TIMEOUT)
        });
        // Retransmissions come at growing intervals, of the ACK timeout at most.
        let bound = outage + LONG.bound() / 8;
        let what = format!("{waiting:?}: carrier back after {outage:?}");
        print_row(&what, bound, ended[0].after);
        assert_eq!(ended[0].status, CompletionStatus::Success);
        assert!(ended[0].after >= outage, "there was no outage");
        assert!(ended[0].after < 2 * bound, "{ended:?}");
        write_through(&left, &here, &ours, &theirs);
    }
}

#[tier1]
fn without_a_carrier_an_idle_device_uses_no_processor_and_a_busy_one_little() {
    let cable = Cable::with_mtu(1500);
    let (left, right) = Waiter::and_peer(&cable, Waiting::Sleeping);
    // As long as a request lives that is never answered: its timers are all that happens.
    let patient = ConnectTimes { timeout: 17, retry_count: 7 };
    let pairs: Vec<_> = (0..FAR).map(|_| connect(&left.end, &right, &patient.options())).collect();
    let (ours, theirs) = (left.end.region(64, 1), right.region(64, 2));
    write_through(&left, &pairs[0].0, &ours, &theirs);
    cut(&cable, &left);
    let measure = |what: &str, most: f64| {
        // The news of the outage have been looked at by then.
        std::thread::sleep(Duration::from_millis(300));
        let (before, began) = (cpu_time(), Instant::now());
        std::thread::sleep(Duration::from_secs(2));
        let share = (cpu_time() - before).as_secs_f64() / began.elapsed().as_secs_f64() * 100.0;
        print_row(&format!("{what}: per cent of a processor"), most, share);
        assert!(share < most, "{what}: {share} % of a processor");
    };
    measure("16 connected queue pairs, no carrier", 0.1);
    pairs.iter().for_each(|(here, _)| post_write(here, 1, &ours, &theirs));
    measure("the same with a request in flight on each", 1.0);
}
