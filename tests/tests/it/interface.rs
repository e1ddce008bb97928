//! An interface that is switched off and on, or removed, under connections.

use roce_test_macros::tier1;
use std::time::{Duration, Instant};

use roce_tests::fixtures::{COMPLETION_TIMEOUT, Cable, connect};
use roce_tests::ip::ip;
use roce_tests::outage::{
    LONG, SHORT, USUAL, Waiter, Waiting, cpu_time, post_write, print_row, write_through,
};
use roce_verbs::CompletionStatus;

#[tier1]
fn traffic_goes_on_by_itself_when_the_own_interface_was_down_and_is_up_again() {
    for waiting in [Waiting::Sleeping, Waiting::Polling] {
        let cable = Cable::with_mtu(1500);
        let (left, right) = Waiter::and_peer(&cable, waiting);
        let (here, _there) = connect(&left.end, &right, &LONG.options());
        let (near, _itself) = connect(&left.end, &left.end, &LONG.options());
        let (ours, theirs) = (left.end.region(64, 1), right.region(64, 2));
        let own = left.end.region(64, 3);
        write_through(&left, &here, &ours, &theirs);
        cable.left.set_down("eth0").unwrap();
        const OUTAGE: Duration = Duration::from_secs(1);
        let (ended, used) = std::thread::scope(|scope| {
            let (host, began) = (&cable.left, Instant::now());
            post_write(&here, 1, &ours, &theirs);
            // What stays in this host does not need the interface.
            post_write(&near, 2, &ours, &own);
            let local = left.collect(1, COMPLETION_TIMEOUT);
            assert_eq!((local[0].wr_id, local[0].status), (2, CompletionStatus::Success));
            print_row(&format!("{waiting:?}: local request, interface down"), (), local[0].after);
            let before = cpu_time();
            scope.spawn(move || {
                std::thread::sleep(OUTAGE.saturating_sub(began.elapsed()));
                host.set_up("eth0").unwrap();
            });
            (left.collect(1, COMPLETION_TIMEOUT), cpu_time() - before)
        });
        assert_eq!(ended[0].status, CompletionStatus::Success, "{ended:?}");
        let bound = OUTAGE + LONG.bound() / 8;
        print_row(&format!("{waiting:?}: interface down and up"), bound, ended[0].after);
        assert!(ended[0].after < 2 * bound, "{ended:?}");
        if waiting == Waiting::Sleeping {
            // A socket with an error wakes every sleeper at once until the error is read.
            print_row("processor time meanwhile", Duration::from_millis(100), used);
            assert!(used < Duration::from_millis(100), "{used:?}");
        }
        write_through(&left, &here, &ours, &theirs);
    }
}

/// The kernel repeats a lost solicitation of a neighbour after a second, which is longer than the request may take.
#[tier1]
fn a_request_outlasts_a_short_outage_of_the_interface() {
    for outage in [5, 50, 200].map(Duration::from_millis) {
        let cable = Cable::with_mtu(1500);
        let (left, right) = Waiter::and_peer(&cable, Waiting::Polling);
        let (here, _there) = connect(&left.end, &right, &USUAL.options());
        let (ours, theirs) = (left.end.region(64, 1), right.region(64, 2));
        write_through(&left, &here, &ours, &theirs);
        cable.left.set_down("eth0").unwrap();
        post_write(&here, 1, &ours, &theirs);
        std::thread::sleep(outage);
        cable.left.set_up("eth0").unwrap();
        let ended = left.collect(1, COMPLETION_TIMEOUT);
        print_row(&format!("interface down for {outage:?}"), USUAL.bound(), ended[0].after);
        assert_eq!(ended[0].status, CompletionStatus::Success, "{outage:?}: {ended:?}");
    }
}

#[tier1]
fn requests_end_in_time_when_the_interface_is_removed_and_nothing_spins() {
    for waiting in [Waiting::Polling, Waiting::Sleeping] {
        let cable = Cable::with_mtu(1500);
        let (left, right) = Waiter::and_peer(&cable, waiting);
        let pairs: Vec<_> = (0..4).map(|_| connect(&left.end, &right, &SHORT.options())).collect();
        let (near, _itself) = connect(&left.end, &left.end, &SHORT.options());
        let (ours, theirs) = (left.end.region(64, 1), right.region(64, 2));
        let own = left.end.region(64, 3);
        write_through(&left, &pairs[0].0, &ours, &theirs);
        post_write(&pairs[0].0, 1, &ours, &theirs);
        ip(&cable.left, "link delete eth0");
        pairs[1..].iter().for_each(|(here, _)| post_write(here, 2, &ours, &theirs));
        post_write(&near, 3, &ours, &own);
        let ended = left.collect(5, SHORT.limit());
        assert_eq!(ended.len(), 5, "{ended:?}");
        for it in &ended {
            // The first may have arrived in time. The last goes to this host itself, by an address
            // that is gone with the interface, which the kernel may say sooner or later.
            let may_succeed = it.wr_id != 2;
            let is_success = may_succeed && it.status == CompletionStatus::Success;
            assert!(is_success || it.status == CompletionStatus::RetryExceeded, "{ended:?}");
        }
        let last = ended.iter().map(|it| it.after).max();
        print_row(&format!("{waiting:?}: interface removed"), SHORT.bound(), last);
        let before = cpu_time();
        std::thread::sleep(Duration::from_secs(2));
        let used = cpu_time() - before;
        print_row("processor time in 2 s afterwards", Duration::from_millis(10), used);
        assert!(used < Duration::from_millis(10), "{used:?}");
        let began = Instant::now();
        drop((pairs, near, _itself, ours, own, left));
        print_row("closing the device", Duration::from_secs(1), began.elapsed());
        assert!(began.elapsed() < Duration::from_secs(1));
    }
}
