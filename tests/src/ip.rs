//! The `ip` program (iproute2), run inside a host, and waiting for what its changes lead to.

use std::time::{Duration, Instant};

use roce_netns::Host;
use roce_netns::process::Launch;

use crate::fixtures::COMPLETION_TIMEOUT;

/// Runs `ip` with these arguments, separated by spaces.
///
/// # Panics
/// When it fails.
pub fn ip(host: &Host, arguments: &str) {
    batch(host, arguments);
}

/// Runs one command of `ip` for each line, in one process.
///
/// # Panics
/// When one of them fails.
pub fn batch(host: &Host, commands: &str) {
    let ip = Launch::new("ip").args(["-batch", "-"]).with_stdin().start_in(host);
    let mut ip = ip.expect("iproute2 is installed (cargo xtask test installs it)");
    ip.write_line(commands).expect("ip reads its commands");
    let ended = ip.wait(Duration::MAX).and_then(|outcome| outcome.check());
    ended.unwrap_or_else(|error| panic!("`{commands}` in {host}: {error}"));
}

/// Makes the kernel of a host ask for neighbours on `eth0` in quick succession, and believe a new
/// MAC address at once: by default it asks once a second and keeps what it learned for a second.
///
/// # Panics
/// When `ip` fails.
pub fn hurry_neighbours(host: &Host) {
    let of = |cache| format!("ntable change name {cache} dev eth0 retrans 50");
    batch(host, &format!("{} locktime 0\n{}\n", of("arp_cache"), of("ndisc_cache")));
}

/// Waits until `is_so` returns true and returns how long that took.
///
/// # Panics
/// When it does not within [`COMPLETION_TIMEOUT`].
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) -> Duration {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < COMPLETION_TIMEOUT, "{what}: not within {COMPLETION_TIMEOUT:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
    began.elapsed()
}
