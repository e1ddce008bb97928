//! Forks while another thread opens and closes a device, for the test that the child is not stopped by that.
//!
//! `roce-test-fork-beside-open INTERFACE ROUNDS`.

use std::error::Error;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use roce_verbs::{Device, DeviceConfig};

/// How long a child may take to open a device and exit.
const LIMIT: Duration = Duration::from_secs(10);

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(interface), Some(rounds)) = (arguments.next(), arguments.next()) else {
        return Err("roce-test-fork-beside-open INTERFACE ROUNDS".into());
    };
    let rounds: u32 = rounds.parse()?;
    let (is_over, opened) = (AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|scope| {
        let opener = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                Device::open(&interface, DeviceConfig::default())?;
                opened.fetch_add(1, Ordering::Relaxed);
            }
            Ok::<(), roce_verbs::Error>(())
        });
        // Each fork at another moment of an opening.
        let failure = (0..rounds).find_map(|round| {
            let before = opened.load(Ordering::Relaxed);
            let deadline = Instant::now() + LIMIT;
            while opened.load(Ordering::Relaxed) == before && Instant::now() < deadline {
                std::thread::yield_now();
            }
            std::thread::sleep(Duration::from_micros(500 * u64::from(round)));
            fork_and_open(&interface).err().map(|error| format!("round {round}: {error}"))
        });
        is_over.store(true, Ordering::Relaxed);
        opener.join().expect("no panic")?;
        failure.map_or(Ok(()), |text| Err(text.into()))
    })
}

/// Makes a child, which opens a device of its own and exits.
fn fork_and_open(interface: &str) -> Result<(), String> {
    // SAFETY: what the child calls must take no lock that a thread of the parent may hold: that is
    // the test.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let outcome = Device::open(interface, DeviceConfig::default());
        // SAFETY: ends the child at once; handlers of the parent's exit are not the child's.
        unsafe { libc::_exit(i32::from(outcome.is_err())) };
    }
    let (began, mut status) = (Instant::now(), 0);
    // SAFETY: asks for the child that was just made; the status is ours.
    while unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } == 0 {
        if began.elapsed() > LIMIT {
            // SAFETY: ends the child that was just made, and that has not been waited for.
            unsafe { libc::kill(child, libc::SIGKILL) };
            return Err("the child hangs".to_owned());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    if status == 0 { Ok(()) } else { Err(format!("the child's status is {status}")) }
}
