//! Values of options and variables that are refused or reported.

use std::process::{Command, Output};

fn roce(arguments: &[&str], log: Option<&str>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_roce"));
    command.args(arguments).env_remove("ROCE_LOG");
    command.envs(log.map(|level| ("ROCE_LOG", level)));
    command.output().expect("the program starts")
}

#[test]
fn a_value_that_means_nothing_is_refused_by_name() {
    let cases: [(&[&str], &str); 5] = [
        (&["pingpong", "-p", "0"], "--port"),
        (&["perf", "write", "bw", "-p", "0"], "--port"),
        (&["perf", "write", "lat", "-q", "2", "--local"], "-q needs bw"),
        (&["dissect", "--psn", "9..5", "-"], "9..5 ends before it begins"),
        (&["allreduce", "-n", "0", "-c", "0", "--local"], "-n and -c are both 0"),
    ];
    for (arguments, told) in cases {
        let output = roce(arguments, None);
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{arguments:?}");
        assert!(complaint.contains(told), "{arguments:?}: {complaint}");
    }
}

#[test]
fn an_unknown_log_level_is_reported_with_the_known_ones() {
    let output = roce(&["lab"], Some("bogus"));
    let warning = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success());
    assert!(warning.contains("ROCE_LOG=bogus"), "{warning}");
    assert!(warning.contains("error, warn, info, debug, trace or off"), "{warning}");
    for level in [None, Some("info"), Some("WARN"), Some("off")] {
        assert!(roce(&["lab"], level).stderr.is_empty(), "{level:?}");
    }
}
