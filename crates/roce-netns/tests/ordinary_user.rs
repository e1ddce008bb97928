//! Virtual networks of an ordinary user (tier 1).
//!
//! The program starts itself again for each test, with the user `nobody` if it is root: a process
//! can enter a user namespace only once, and only with one thread. It runs only with ignored
//! tests, as other tests of tier 1.

use std::error::Error;
use std::net::UdpSocket;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use roce_netns::{Link, NetnsError, VirtualNetwork};

type Outcome = Result<(), Box<dyn Error>>;

fn main() -> Outcome {
    match std::env::var(TEST).as_deref() {
        Ok(SECOND_THREAD) => return an_error_names_a_second_thread_as_its_reason(),
        Ok(CABLE) => return an_ordinary_user_connects_two_hosts_and_sends(),
        _ => {}
    }
    let asked = |flag: &str| std::env::args().any(|argument| argument == flag);
    let named = std::env::args().skip(1).any(|argument| !argument.starts_with('-'));
    let tests = [SECOND_THREAD, CABLE].into_iter().filter(|test| !named || asked(test));
    if asked("--list") {
        tests.for_each(|test| println!("{test}: test"));
        return Ok(());
    }
    let runs = asked("--ignored") || asked("--include-ignored");
    let (mut passed, mut failed, mut ignored) = (0, 0, 0);
    for test in tests {
        let result = if !runs {
            ignored += 1;
            "ignored, tier 1: needs network namespaces (cargo xtask test runs it)"
        } else if passes(test)? {
            passed += 1;
            "ok"
        } else {
            failed += 1;
            "FAILED"
        };
        println!("test {test} ... {result}");
    }
    let verdict = if failed == 0 { "ok" } else { "FAILED" };
    println!("test result: {verdict}. {passed} passed; {failed} failed; {ignored} ignored");
    if failed == 0 { Ok(()) } else { Err("see above".into()) }
}

/// Runs a test in its own process. Returns true if it passes.
fn passes(test: &str) -> Result<bool, Box<dyn Error>> {
    // This path works even if the user `nobody` may not enter the directory.
    let mut again = Command::new("/proc/self/exe");
    again.env(TEST, test).current_dir("/");
    if nix::unistd::geteuid().is_root() {
        again.uid(NOBODY).gid(NOBODY);
    }
    Ok(again.status()?.success())
}

fn an_error_names_a_second_thread_as_its_reason() -> Outcome {
    let refusal =
        std::thread::scope(|scope| scope.spawn(roce_netns::enter_user_namespace_if_needed).join());
    let refusal = refusal.expect("it does not panic").unwrap_err();
    assert!(matches!(refusal, NetnsError::ThreadsExist { threads: 2 }), "{refusal}");
    Ok(())
}

fn an_ordinary_user_connects_two_hosts_and_sends() -> Outcome {
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

/// Name of the test for the child process.
const TEST: &str = "ROCE_NETLAB_TEST";
const SECOND_THREAD: &str = "an_error_names_a_second_thread_as_its_reason";
const CABLE: &str = "an_ordinary_user_connects_two_hosts_and_sends";
const NOBODY: u32 = 65534;
