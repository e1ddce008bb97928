//! Children of a process that uses devices.

use roce_test_macros::tier1;
use std::process::Command;

use roce_tests::fixtures::Cable;

#[tier1]
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
