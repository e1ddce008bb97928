//! The command where its starter ignores signals.

use std::process::Command;

#[test]
fn the_command_does_its_work_though_its_starter_ignores_signals() {
    // A stage that does not exist ends the run before it does anything.
    let script = "trap '' INT QUIT; exec \"$0\" test --only no-such-stage";
    let output =
        Command::new("sh").args(["-c", script, env!("CARGO_BIN_EXE_xtask")]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("no such stage"), "{told}");
    assert!(!output.status.success());
}
