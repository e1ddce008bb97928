//! Processes that get no processor for a while: stopped, or beside busy loops.

use roce_test_macros::tier1;
use std::time::{Duration, Instant};

use roce_netns::process::{Launch, Running, Signal};
use roce_tests::echo::{Echo, Process, start_sender};
use roce_tests::fixtures::Cable;
use roce_tests::outage::{USUAL, print_row};

/// An echo server on the right and its client on the left, which sends for so many seconds.
fn sender_and_echo(cable: &Cable, seconds: f64, message: &str) -> (Process, Echo) {
    let echo = env!("CARGO_BIN_EXE_roce-test-echo");
    let echo = Echo::start(echo, &cable.right, "eth0", "10.1.0.2", 7001);
    let sender = env!("CARGO_BIN_EXE_roce-test-sender");
    (start_sender(sender, &cable.left, &echo, seconds, USUAL, message), echo)
}

/// Stops a process for so long.
fn stop(process: &Process, duration: Duration) {
    process.signal(Signal::SIGSTOP);
    std::thread::sleep(duration);
    process.signal(Signal::SIGCONT);
}

#[tier1]
fn nothing_fails_while_the_peer_is_stopped_for_half_the_bound() {
    let cable = Cable::with_mtu(1500);
    let (sender, echo) = sender_and_echo(&cable, 2.0, "echo");
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(100));
        stop(&echo.process, USUAL.bound() / 2);
    }
    let line = sender.last_line();
    print_row("peer stopped for half the bound", USUAL.bound(), &line);
    assert!(line.ends_with("all succeeded"), "{line}");
}

#[tier1]
fn requests_to_a_peer_that_is_stopped_for_three_times_the_bound_end_with_retry_exceeded() {
    let cable = Cable::with_mtu(1500);
    // WRITEs, since a sender of them always has one under way: what is echoed may all be acknowledged and
    // nothing answered yet when the peer stops, and then no request is left that could end.
    let (sender, echo) = sender_and_echo(&cable, 5.0, "write");
    std::thread::sleep(Duration::from_millis(100));
    let began = Instant::now();
    echo.process.signal(Signal::SIGSTOP);
    let line = sender.last_line();
    let took = began.elapsed();
    echo.process.signal(Signal::SIGCONT);
    print_row("peer stopped for good", USUAL.bound(), took);
    assert!(line.ends_with("failed: RetryExceeded"), "{line}");
    assert!(took > USUAL.bound() / 2, "{took:?}");
    assert!(took < 3 * USUAL.bound(), "{took:?}");
}

#[tier1]
fn nothing_fails_when_this_process_itself_was_stopped_for_three_times_the_bound() {
    let cable = Cable::with_mtu(1500);
    // The peer posts nothing: its own requests to a process that is silent for so long would end,
    // and rightly so.
    let (sender, _echo) = sender_and_echo(&cable, 4.0, "write");
    for _ in 0..2 {
        std::thread::sleep(Duration::from_millis(100));
        stop(&sender, 3 * USUAL.bound());
    }
    let line = sender.last_line();
    print_row("requester stopped for three times the bound", USUAL.bound(), &line);
    assert!(line.ends_with("all succeeded"), "{line}");
}

/// Starts busy loops, which end when they are dropped.
fn busy_loops(count: usize) -> Vec<Running> {
    let shell = Launch::new("sh").args(["-c", "while :; do :; done"]).grace(Duration::ZERO);
    (0..count).map(|_| shell.start().expect("a shell")).collect()
}

/// For ten minutes: `ROCE_BUSY_SECONDS=600 cargo test -p roce-tests --test stopped -- --ignored
/// beside_eight --nocapture`.
#[tier1]
fn nothing_fails_beside_eight_busy_loops_when_messages_are_posted_one_by_one() {
    let seconds = std::env::var("ROCE_BUSY_SECONDS").ok().and_then(|text| text.parse().ok());
    let seconds = seconds.unwrap_or(10.0);
    let cable = Cable::with_mtu(1500);
    let _busy = busy_loops(8);
    let (sender, _echo) = sender_and_echo(&cable, seconds, "echo");
    let line = sender.last_line();
    print_row(&format!("beside eight busy loops for {seconds} s"), USUAL.bound(), &line);
    assert!(line.ends_with("all succeeded"), "{line}");
}
