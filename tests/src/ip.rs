//! The `ip` program (iproute2), run inside a host, and waiting for what its changes lead to.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use roce_netns::Host;

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
    let output = host.run(|| {
        let mut child = Command::new("ip")
            .args(["-batch", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("iproute2 is installed (cargo xtask test installs it)");
        let mut stdin = child.stdin.take().expect("a pipe");
        stdin.write_all(commands.as_bytes()).expect("ip reads its commands");
        drop(stdin);
        child.wait_with_output().expect("ip ends")
    });
    assert!(
        output.status.success(),
        "`{commands}` in {host}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
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
