//! Children of a process that uses devices.

use std::process::Command;

use roce_tests::fixtures::Cable;

#[test]
#[ignore = "tier 1: needs network namespaces (cargo xtask test runs it)"]
fn a_child_that_is_made_while_another_thread_opens_a_device_can_open_its_own() {
    let cable = Cable::with_mtu(1500);
    let fifo = std::env::temp_dir().join(format!("roce-fork-{}", std::process::id()));
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_roce-test-fork-beside-open"));
    command.arg("eth0").arg(&fifo);
    let status = cable.left.spawn(command).and_then(|mut child| child.wait());
    std::fs::remove_file(&fifo).unwrap();
    assert!(status.unwrap().success());
}
