//! Commands run at both ends of a private network (tier 1).

use roce_test_macros::tier1;
use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use roce_netns::process::{Launch, Signal, children_of, is_running};

use crate::commands::{line_of, roce, succeeded, within};

type Outcome = Result<(), Box<dyn Error>>;

#[tier1]
fn pingpong_prints_what_ibv_rc_pingpong_prints() -> Outcome {
    for events in [&[][..], &["--events"]] {
        let output = roce(&["pingpong", "--local", "-n", "50", "-c"], events)?;
        let text = succeeded(&output)?;
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("  local address:  LID 0x0000, QPN 0x"), "{text}");
        assert!(lines[0].ends_with(", GID ::ffff:10.0.0.2"), "{text}");
        assert!(lines[1].starts_with("  remote address: LID 0x0000, QPN 0x"), "{text}");
        assert!(lines[1].ends_with(", GID ::ffff:10.0.0.1"), "{text}");
        assert!(lines[2].starts_with("409600 bytes in 0."), "{text}");
        assert!(lines[2].ends_with(" Mbit/sec"), "{text}");
        assert!(lines[3].starts_with("50 iters in 0."), "{text}");
        assert!(lines[3].ends_with(" usec/iter"), "{text}");
        assert_eq!(lines.len(), 4, "{text}");
    }
    Ok(())
}

#[tier1]
fn pingpong_bounces_messages_over_every_service() -> Outcome {
    let cases = [
        ("rc", &[][..], 1, "409600 bytes in 0."),
        ("uc", &["-c"], 1, "409600 bytes in 0."),
        ("ud", &[], 1, "204800 bytes in 0."),
        ("ud", &["-s", "0"], 1, "0 bytes in 0."),
        ("srq", &["-q", "4"], 4, "409600 bytes in 0."),
    ];
    for (service, more, pairs, result) in cases {
        for events in [&[][..], &["--events"]] {
            let run = ["pingpong", "--local", "-n", "50", "--service", service];
            let text = succeeded(&roce(&run, &[more, events].concat())?)?;
            let lines: Vec<&str> = text.lines().collect();
            let count = |start| lines.iter().filter(|line| line.starts_with(start)).count();
            assert_eq!(count("  local address:  LID 0x0000, QPN 0x"), pairs, "{text}");
            assert_eq!(count("  remote address: LID 0x0000, QPN 0x"), pairs, "{text}");
            assert!(lines[2 * pairs].starts_with(result), "{text}");
            assert!(lines[2 * pairs + 1].starts_with("50 iters in 0."), "{text}");
            assert_eq!(lines.len(), 2 * pairs + 2, "{text}");
        }
    }
    for events in [&[][..], &["--events"]] {
        let text = succeeded(&roce(&["pingpong", "--local", "--cm", "-n", "50", "-c"], events)?)?;
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("  local address:  LID 0x0000, QPN 0x"), "{text}");
        assert!(lines[1].starts_with("  remote address: LID 0x0000, QPN 0x"), "{text}");
        assert!(lines[2].starts_with("409600 bytes in 0."), "{text}");
        assert_eq!(lines.len(), 4, "{text}");
    }
    let complaint = roce(&["pingpong", "--local", "--cm", "--service", "uc"], &[])?;
    assert!(String::from_utf8_lossy(&complaint.stderr).contains("--cm needs --service rc"));
    let long = roce(&["pingpong", "--local", "--service", "ud", "-s", "8K"], &[])?;
    let complaint = String::from_utf8_lossy(&long.stderr);
    assert!(
        !long.status.success() && complaint.contains("longer than the port MTU"),
        "{complaint}"
    );
    Ok(())
}

#[tier1]
fn every_operation_is_measured_in_bandwidth_and_latency() -> Outcome {
    for verb in ["send", "write", "read", "atomic"] {
        for (test, figure) in [("bw", "BW_average"), ("lat", "t_typical")] {
            let output = roce(&["perf", verb, test, "--local", "--json"], &["-n", "100"])?;
            let report: serde_json::Value = serde_json::from_str(&succeeded(&output)?)?;
            let result = &report["results"][0];
            assert_eq!(result["n_iterations"], 100, "{report}");
            assert!(result[figure].as_f64().is_some_and(|value| value > 0.0), "{report}");
        }
    }
    Ok(())
}

const UNRELIABLE: [[&str; 4]; 3] =
    [["perf", "send", "-c", "UC"], ["perf", "write", "-c", "UC"], ["perf", "send", "-c", "UD"]];

/// Runs `roce perf` and returns its report.
fn measured(arguments: &[&str], more: &[&str]) -> Result<serde_json::Value, Box<dyn Error>> {
    let arguments = [arguments, &["--local", "--json"]].concat();
    Ok(serde_json::from_str(&succeeded(&roce(&arguments, more)?)?)?)
}

#[tier1]
fn unreliable_services_are_measured_and_what_they_lost_is_told() -> Outcome {
    for service in UNRELIABLE {
        for (test, figure) in [("bw", "BW_average"), ("lat", "t_typical")] {
            for more in [&["-n", "100"][..], &["-n", "100", "-e"]] {
                if test == "lat" && service[1] == "write" && more.contains(&"-e") {
                    continue;
                }
                let report = measured(&service, &[more, &[test]].concat())?;
                assert_eq!(report["test_info"]["Connection_type"], service[3], "{report}");
                let result = &report["results"][0];
                assert_eq!(result["n_iterations"], 100, "{report}");
                assert!(result[figure].as_f64().is_some_and(|value| value > 0.0), "{report}");
                assert!(result["n_lost"].as_u64().is_some_and(|lost| lost < 100), "{report}");
            }
        }
        let many = ["bw", "-D", "0.4", "-q", "3", "-s", "512", "-l", "16"];
        let result = &measured(&service, &many)?["results"][0];
        assert!(result["n_iterations"].as_u64() > Some(0), "{result}");
        assert!(result["lost_percent"].as_f64().is_some_and(|lost| lost < 100.0), "{result}");
        let result = &measured(&service, &["lat", "-D", "0.4"])?["results"][0];
        assert!(result["tps_average"].as_f64() > Some(0.0), "{result}");
    }
    Ok(())
}

#[tier1]
fn no_end_waits_for_messages_that_were_lost() -> Outcome {
    for service in UNRELIABLE {
        let report = measured(&service, &["bw", "-a", "-n", "50", "--loss", "20%"])?;
        let results = report["results"].as_array().ok_or("no rows")?;
        assert_eq!(results.len(), if service[3] == "UD" { 12 } else { 23 }, "{report}");
        for result in results {
            let lost = result["n_lost"].as_u64().ok_or("no loss in the row")?;
            assert_eq!(result["lost_percent"].as_f64(), Some(lost as f64 * 2.0), "{report}");
        }
        assert!(results.iter().any(|result| result["n_lost"] != 0), "{report}");
        let result = &measured(&service, &["lat", "-n", "40", "--loss", "5%"])?["results"][0];
        assert!((1..30).contains(&result["n_lost"].as_u64().unwrap_or(0)), "{result}");
        assert!(result["t_max"].as_f64() < Some(250_000.0), "a lost one counts: {result}");
    }
    Ok(())
}

#[tier1]
fn the_static_rate_limits_the_bandwidth() -> Outcome {
    for service in UNRELIABLE {
        let limited = ["bw", "-s", "1K", "-n", "1000", "--rate", "0.1", "--report_gbits"];
        let report = measured(&service, &limited)?;
        let average = report["results"][0]["BW_average"].as_f64().unwrap_or(f64::NAN);
        assert!(average > 0.0 && average < 0.11, "{report}");
        assert_eq!(report["test_info"]["Static_rate"], 0.1, "{report}");
    }
    let refused: [(&[&str], &str); 4] = [
        (&["perf", "read", "bw", "-c", "UC"], "UC has no READs"),
        (&["perf", "write", "bw", "-c", "UD"], "UD has SENDs only"),
        (&["perf", "send", "bw", "-c", "UD", "-s", "8K"], "longer than the path MTU of 4096"),
        (&["perf", "send", "bw", "--rate", "1"], "--rate needs -c UC or -c UD"),
    ];
    for (arguments, told) in refused {
        let output = roce(arguments, &["--local"])?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && complaint.contains(told), "{complaint}");
    }
    Ok(())
}

#[tier1]
fn many_queue_pairs_share_a_test_and_a_test_may_run_for_a_time() -> Outcome {
    for verb in ["send", "write", "read"] {
        let arguments = ["perf", verb, "bw", "--local", "--json", "-q", "5", "-s", "4K"];
        let report: serde_json::Value =
            serde_json::from_str(&succeeded(&roce(&arguments, &["-n", "30"])?)?)?;
        assert_eq!(report["results"][0]["n_iterations"], 150, "{report}");
        let report: serde_json::Value =
            serde_json::from_str(&succeeded(&roce(&arguments, &["-D", "0.4"])?)?)?;
        assert!(report["results"][0]["n_iterations"].as_u64() > Some(0), "{report}");
    }
    for verb in ["send", "write", "read", "atomic"] {
        let arguments = ["perf", verb, "lat", "--local", "--json", "-D", "0.4"];
        let report: serde_json::Value = serde_json::from_str(&succeeded(&roce(&arguments, &[])?)?)?;
        assert!(report["results"][0]["tps_average"].as_f64() > Some(0.0), "{report}");
    }
    Ok(())
}

#[tier1]
fn a_thousand_queue_pairs_share_a_link_and_their_shares_are_told() -> Outcome {
    // Patient with a slow build: this test holds the shares of the queue pairs, not the rate.
    let arguments = ["perf", "write", "bw", "--local", "--json", "-q", "1000", "-s", "1K"];
    let report: serde_json::Value =
        serde_json::from_str(&succeeded(&roce(&arguments, &["-n", "20", "-u", "18"])?)?)?;
    let result = &report["results"][0];
    assert_eq!(result["n_iterations"], 20_000, "{report}");
    let share = |name: &str| result["fairness"][name].as_f64().unwrap_or(f64::NAN);
    assert!((0.0..=1.0).contains(&share("min_share")), "{report}");
    assert!(share("max_share") >= 1.0, "{report}");
    Ok(())
}

#[tier1]
fn messages_go_through_a_working_set_and_arrive_as_they_were_sent() -> Outcome {
    // 5000 bytes are in no way aligned; an end that sleeps does as well as one that polls.
    for verb in ["send", "write", "read"] {
        for more in [&["-n", "30"][..], &["-n", "300", "-e", "-q", "3", "-r", "7"], &["-D", "0.3"]]
        {
            let arguments = ["perf", verb, "bw", "--local", "--working-set", "100K", "-s", "5000"];
            succeeded(&roce(&arguments, more)?)?;
        }
    }
    succeeded(&roce(&["perf", "write", "bw", "--local", "-s", "8", "-I", "64"], &HUGE)?)?;
    let output = roce(&["perf", "send", "lat", "--local", "--working-set", "1M"], &[])?;
    assert!(String::from_utf8_lossy(&output.stderr).contains("needs bw"), "{output:?}");
    Ok(())
}

#[tier1]
fn ends_that_sleep_measure_a_latency() -> Outcome {
    for verb in ["send", "read", "atomic"] {
        for more in [&["-n", "50"][..], &["-D", "0.2"], &["-n", "50", "--spin", "0"]] {
            succeeded(&roce(&["perf", verb, "lat", "--local", "-e"], more)?)?;
        }
    }
    Ok(())
}

#[tier1]
fn an_end_runs_on_its_cpu_or_reports_why_not() -> Outcome {
    let place = |list| roce(&["perf", "write", "bw", "--local", "-n", "20", "--cpu"], &[list]);
    succeeded(&place("0,0")?)?;
    let output = place("0,99999")?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && complaint.contains("CPU 99999; choose one of"),
        "{complaint}"
    );
    let output = roce(&["pingpong", "--local", "-n", "20"], &["--realtime"])?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() || complaint.contains("CAP_SYS_NICE"), "{complaint}");
    Ok(())
}

/// A working set of memory from huge pages.
const HUGE: [&str; 5] = ["--working-set", "4M", "--huge-pages", "-n", "100"];

#[tier1]
fn an_ordinary_user_needs_no_root() -> Outcome {
    let directory = Directory::new("user")?;
    let program = directory.0.join("roce");
    fs::copy(env!("CARGO_BIN_EXE_roce"), &program)?;
    let mut command = Command::new(&program);
    command.args(["pingpong", "--local", "-n", "20"]).current_dir("/");
    if nix::unistd::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    succeeded(&command.output()?)?;
    Ok(())
}

#[tier1]
fn a_capture_is_written_whole() -> Outcome {
    let directory = Directory::new("pcap")?;
    let file = directory.0.join("out.pcapng");
    let name = file.to_str().ok_or("a path that is text")?;
    succeeded(&roce(&["pingpong", "--local", "-n", "10", "-s", "64"], &["--pcap", name])?)?;
    let capture = fs::read(&file)?;
    assert_eq!(capture[..4], [0x0a, 0x0d, 0x0d, 0x0a], "it is not pcapng");
    // Ten messages each way, of 64 bytes behind 58 of headers and ICRC, at the very least.
    assert!(capture.len() > 20 * (64 + 58), "{} bytes", capture.len());
    Ok(())
}

#[tier1]
fn what_is_lost_is_sent_again() -> Outcome {
    let faults = ["--loss", "2%", "--duplicate", "1%", "--reorder", "1%", "--seed", "7"];
    succeeded(&roce(&["pingpong", "--local", "-n", "200", "-c"], &faults)?)?;
    succeeded(&roce(&["perf", "write", "bw", "--local", "-n", "50"], &faults)?)?;
    Ok(())
}

#[tier1]
fn a_failure_at_either_end_is_told_and_exits_non_zero() -> Outcome {
    let output = roce(&["pingpong", "--local", "-d", "nosuch0"], &[])?;
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && told.contains("nosuch0"), "{told}");
    let output = roce(&["pingpong", "--local", "--link-mtu", "600", "-m", "1024"], &[])?;
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && told.contains("path MTU 1024"), "{told}");
    for file in ["/dev/full", "/no/such/directory"] {
        let output = roce(&["pingpong", "--local", "--pcap", file], &[])?;
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && told.contains(file), "{told}");
    }
    Ok(())
}

#[tier1]
fn an_error_of_both_ends_is_printed_once() -> Outcome {
    for command in [&["pingpong", "--gid-idx", "9"][..], &["perf", "write", "bw", "-x", "9"]] {
        let output = roce(command, &["--local"])?;
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{command:?}");
        assert_eq!(told.matches("GID index 9 of eth0 is not usable; use one of 0").count(), 1);
    }
    let command = ["perf", "write", "bw", "--local", "--link-mtu", "600", "-m", "1024"];
    let told = String::from_utf8(roce(&command, &[])?.stderr)?;
    assert_eq!(told.matches("path MTU 1024").count(), 1, "{told}");
    Ok(())
}

#[tier1]
fn a_run_that_is_killed_leaves_no_process_behind() -> Outcome {
    let command = ["perf", "write", "bw", "--local", "-D", "60"];
    let parent = Launch::new(env!("CARGO_BIN_EXE_roce")).args(command).start()?;
    line_of(&parent, |line| line.contains("#bytes"))?;
    let children = children_of(parent.id());
    assert_eq!(children.len(), 2);
    parent.signal(Signal::SIGKILL);
    within("the end of its children", || !children.iter().any(|child| is_running(*child)))
}

/// A directory that anybody may enter, gone when dropped.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Result<Self, Box<dyn Error>> {
        let path = std::env::temp_dir().join(format!("roce-{name}-{}", std::process::id()));
        fs::create_dir_all(&path)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        Ok(Self(path))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const NOBODY: u32 = 65534;

#[tier1]
fn a_command_whose_reader_goes_away_ends_in_silence() -> Outcome {
    for command in [
        &["perf", "write", "lat", "-n", "1000"][..],
        &["pingpong", "-n", "2000"],
        &["allreduce", "-b", "8", "-e", "1M", "-f", "2", "-n", "5"],
    ] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_roce"))
            .args(command)
            .arg("--local")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut output = BufReader::new(child.stdout.take().ok_or("standard output is piped")?);
        output.read_line(&mut String::new())?;
        drop(output);
        let ended = child.wait_with_output()?;
        let said = String::from_utf8_lossy(&ended.stderr);
        let more = said.lines().find(|line| !line.starts_with("private network: "));
        assert_eq!(more, None, "{command:?}");
        assert!(ended.status.success(), "{command:?}: {}", ended.status);
    }
    Ok(())
}
