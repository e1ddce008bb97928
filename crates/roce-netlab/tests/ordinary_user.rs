//! An ordinary user makes a private network too (tier 1).
//!
//! It starts itself again for each law, as nobody if it is root: a process can enter a user
//! namespace only once, and only before it has had a second thread. It runs only when asked
//! for ignored tests, as the other tests of tier 1 do.

use std::error::Error;
use std::net::UdpSocket;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use roce_netlab::{Lab, LabError, Link};

type Outcome = Result<(), Box<dyn Error>>;

fn main() -> Outcome {
    let asked = |flag: &str| std::env::args().any(|argument| argument == flag);
    if !asked("--ignored") && !asked("--include-ignored") || asked("--list") {
        return Ok(());
    }
    match std::env::args().next_back().as_deref() {
        Some(SECOND_THREAD) => return a_second_thread_is_named_as_the_reason_for_refusing(),
        Some(CABLE) => return an_ordinary_user_lays_a_cable_and_sends_over_it(),
        _ => {}
    }
    for law in [SECOND_THREAD, CABLE] {
        // By this name it is found even where nobody may not enter the directory it is in.
        let mut again = Command::new("/proc/self/exe");
        again.args(["--ignored", law]).current_dir("/");
        if nix::unistd::geteuid().is_root() {
            again.uid(NOBODY).gid(NOBODY);
        }
        let status = again.status()?;
        println!("test {law} ... {}", if status.success() { "ok" } else { "FAILED" });
        status.success().then_some(()).ok_or_else(|| status.to_string())?;
    }
    Ok(())
}

fn a_second_thread_is_named_as_the_reason_for_refusing() -> Outcome {
    let refusal =
        std::thread::scope(|scope| scope.spawn(roce_netlab::enter_user_namespace_if_needed).join());
    let refusal = refusal.expect("it does not panic").unwrap_err();
    assert!(matches!(refusal, LabError::ThreadsExist { threads: 2 }), "{refusal}");
    Ok(())
}

fn an_ordinary_user_lays_a_cable_and_sends_over_it() -> Outcome {
    roce_netlab::enter_user_namespace_if_needed()?;
    let lab = Lab::new()?;
    let (left, right) = (lab.host("left")?, lab.host("right")?);
    lab.veth((&left, "eth0"), (&right, "eth0"), Link::default())?;
    left.address("eth0", "10.0.0.1/24".parse()?)?;
    right.address("eth0", "10.0.0.2/24".parse()?)?;
    let receiver = right.run(|| UdpSocket::bind("10.0.0.2:7"))?;
    receiver.set_read_timeout(Some(Duration::from_secs(10)))?;
    left.run(|| UdpSocket::bind("10.0.0.1:0")?.send_to(b"hello", "10.0.0.2:7"))?;
    assert_eq!(receiver.recv(&mut [0; 16])?, 5);
    Ok(())
}

const SECOND_THREAD: &str = "a_second_thread_is_named_as_the_reason_for_refusing";
const CABLE: &str = "an_ordinary_user_lays_a_cable_and_sends_over_it";
const NOBODY: u32 = 65534;
