//! The command where its starter ignores signals.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

#[test]
fn the_command_starts_anew_without_the_signals_that_its_starter_ignores() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ignored_signals");
    fs::create_dir_all(&folder).unwrap();
    let noted = folder.join("noted");
    fs::write(&noted, "").unwrap();
    // In front of the real one in PATH; it notes what it is asked for.
    let env = folder.join("env");
    fs::write(&env, "#!/bin/sh\necho \"$*\" >> \"$NOTED\"\nexec /usr/bin/env \"$@\"\n").unwrap();
    fs::set_permissions(&env, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    // A stage that does not exist ends the run before it does anything.
    let script = "trap '' INT QUIT; exec \"$0\" test --only no-such-stage";
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_xtask")]);
    let output = command.env("PATH", path).env("NOTED", &noted).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("no such stage"), "{told}");
    assert!(!output.status.success());
    let noted = fs::read_to_string(noted).unwrap();
    let restarts: Vec<&str> = noted.lines().filter(|line| line.contains("no-such-stage")).collect();
    let [restart] = restarts[..] else { panic!("{noted}") };
    assert!(restart.starts_with("--default-signal=INT,QUIT /"), "{restart}");
}
