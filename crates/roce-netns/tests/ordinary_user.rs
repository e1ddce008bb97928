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

use roce_netns::{Link, NetnsError, VirtualNetwork};

type Outcome = Result<(), Box<dyn Error>>;

fn main() -> Outcome {
    match std::env::var(LAW).as_deref() {
        Ok(SECOND_THREAD) => return a_second_thread_is_named_as_the_reason_for_refusing(),
        Ok(CABLE) => return an_ordinary_user_lays_a_cable_and_sends_over_it(),
        _ => {}
    }
    let asked = |flag: &str| std::env::args().any(|argument| argument == flag);
    let runs = asked("--ignored") || asked("--include-ignored");
    let (mut passed, mut failed, mut ignored) = (0, 0, 0);
    for law in [SECOND_THREAD, CABLE] {
        let told = if asked("--list") || !runs {
            ignored += 1;
            "ignored, tier 1: needs network namespaces (cargo xtask test runs it)"
        } else if tried_again(law)? {
            passed += 1;
            "ok"
        } else {
            failed += 1;
            "FAILED"
        };
        println!("test {law} ... {told}");
    }
    let verdict = if failed == 0 { "ok" } else { "FAILED" };
    println!("test result: {verdict}. {passed} passed; {failed} failed; {ignored} ignored");
    if failed == 0 { Ok(()) } else { Err("see above".into()) }
}

/// Whether the law holds in a process of its own.
fn tried_again(law: &str) -> Result<bool, Box<dyn Error>> {
    // By this name it is found even where nobody may not enter the directory it is in.
    let mut again = Command::new("/proc/self/exe");
    again.env(LAW, law).current_dir("/");
    if nix::unistd::geteuid().is_root() {
        again.uid(NOBODY).gid(NOBODY);
    }
    Ok(again.status()?.success())
}

fn a_second_thread_is_named_as_the_reason_for_refusing() -> Outcome {
    let refusal =
        std::thread::scope(|scope| scope.spawn(roce_netns::enter_user_namespace_if_needed).join());
    let refusal = refusal.expect("it does not panic").unwrap_err();
    assert!(matches!(refusal, NetnsError::ThreadsExist { threads: 2 }), "{refusal}");
    Ok(())
}

fn an_ordinary_user_lays_a_cable_and_sends_over_it() -> Outcome {
    roce_netns::enter_user_namespace_if_needed()?;
    let network = VirtualNetwork::new()?;
    let (left, right) = (network.host("left")?, network.host("right")?);
    network.veth((&left, "eth0"), (&right, "eth0"), Link::default())?;
    left.address("eth0", "10.0.0.1/24".parse()?)?;
    right.address("eth0", "10.0.0.2/24".parse()?)?;
    let receiver = right.run(|| UdpSocket::bind("10.0.0.2:7"))?;
    receiver.set_read_timeout(Some(Duration::from_secs(10)))?;
    left.run(|| UdpSocket::bind("10.0.0.1:0")?.send_to(b"hello", "10.0.0.2:7"))?;
    assert_eq!(receiver.recv(&mut [0; 16])?, 5);
    Ok(())
}

/// Names the law to the process that tries it.
const LAW: &str = "ROCE_NETLAB_LAW";
const SECOND_THREAD: &str = "a_second_thread_is_named_as_the_reason_for_refusing";
const CABLE: &str = "an_ordinary_user_lays_a_cable_and_sends_over_it";
const NOBODY: u32 = 65534;
