//! Receives one message and ends, for the tests of what a process still owes its peer.
//!
//! `roce-test-receiver INTERFACE ENDING`. Prints its destination, reads its peer's, prints `ready`,
//! polls until the message has come, and ends at once as `ENDING` says: `return` from `main`,
//! `exit`, `exit-beside-pollers` while other threads poll, `exit-in-a-child` that has forked before.

use std::error::Error;
use std::io::BufRead;

use roce_tests::fixtures::{COMPLETION_TIMEOUT, TestDevice, device_config};
use roce_verbs::{CompletionStatus, ConnectOptions, Device, RecvWr};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(interface), Some(ending)) = (arguments.next(), arguments.next()) else {
        return Err("roce-test-receiver INTERFACE ENDING".into());
    };
    if ending == "exit-in-a-child" {
        let device = Device::open(&interface, device_config())?;
        // SAFETY: the parent has no thread of its own that holds a lock; it waits and exits.
        let child = unsafe { libc::fork() };
        if child != 0 {
            let mut status = 0;
            // SAFETY: waits for the child that was just made; the status is ours.
            unsafe { libc::waitpid(child, &mut status, 0) };
            drop(device);
            std::process::exit(status);
        }
        std::mem::forget(device);
    }
    // Nothing is dropped: the process owns it until its end, as a static would.
    let end = Box::leak(Box::new(TestDevice::of(Device::open(&interface, device_config())?)));
    let qp = Box::leak(Box::new(end.queue_pair()));
    println!("{}", qp.dest(None)?);
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    qp.connect(&line.trim().parse()?, &ConnectOptions::default())?;
    let region = Box::leak(Box::new(end.region(64, 1)));
    qp.post_recv([RecvWr::new(1, [region.sge(..)?])])?;
    if ending == "exit-beside-pollers" {
        for _ in 0..2 {
            let (device, idle) = (end.device.clone(), end.device.create_cq(1, None)?);
            std::thread::spawn(move || {
                loop {
                    let _none = (idle.poll_one(), device.counters());
                }
            });
        }
    }
    println!("ready");
    let done = end.cq.spin_wait(COMPLETION_TIMEOUT).ok_or("no message")?;
    assert_eq!(done.status, CompletionStatus::Success);
    if ending != "return" {
        std::process::exit(0);
    }
    Ok(())
}
