//! Forks while another thread opens a device, for the test that the child is not stopped by that.
//!
//! `roce-test-fork-beside-open INTERFACE FIFO`. The other thread's capture goes to a FIFO that
//! nothing reads, so it stays within `Device::open` until the parent reads.

use std::error::Error;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use roce_verbs::{Device, DeviceConfig};

/// How long the child may take to open a device and exit.
const LIMIT: Duration = Duration::from_secs(10);

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(interface), Some(fifo)) = (arguments.next(), arguments.next()) else {
        return Err("roce-test-fork-beside-open INTERFACE FIFO".into());
    };
    let capture = Some(PathBuf::from(&fifo));
    let config = DeviceConfig { capture, ..DeviceConfig::default() };
    let its = interface.clone();
    let opener = std::thread::spawn(move || Device::open(&its, config).map(|_| ()));
    wait_until_opening(&fifo);
    // SAFETY: what the child calls must take no lock that a thread of the parent may hold: that is
    // the test.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let outcome = Device::open(&interface, DeviceConfig::default());
        std::process::exit(i32::from(outcome.is_err()));
    }
    let (began, mut status) = (Instant::now(), 0);
    // SAFETY: asks for the child that was just made; the status is ours.
    while unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } == 0 {
        if began.elapsed() > LIMIT {
            // SAFETY: ends the child that was just made, and that has not been waited for.
            unsafe { libc::kill(child, libc::SIGKILL) };
            return Err("the child hangs".into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    if status != 0 {
        return Err(format!("the child's status is {status}").into());
    }
    let _reader = std::fs::File::open(&fifo)?;
    opener.join().expect("no panic")?;
    Ok(())
}

/// Waits until a thread is in the system call that opens the FIFO.
fn wait_until_opening(fifo: &str) {
    let openat = libc::SYS_openat.to_string();
    let is_there = || {
        let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        let mut calls =
            tasks.filter_map(|task| std::fs::read_to_string(task.path().join("syscall")).ok());
        calls.any(|call| call.split(' ').next() == Some(&openat))
    };
    let deadline = Instant::now() + LIMIT;
    while !is_there() {
        assert!(Instant::now() < deadline, "no thread opens {fifo}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
