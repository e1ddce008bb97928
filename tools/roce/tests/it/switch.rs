//! Commands whose private hosts have a switch between them, and `roce switch` itself (tier 1).

use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use roce_test_macros::tier1;
use serde_json::Value;

type Outcome = Result<(), Box<dyn Error>>;

/// Runs a line with `--switch SPEC`, and returns its output and the switch's report.
fn through(line: &[&str], spec: &str, report: &str) -> Result<(String, Value), Box<dyn Error>> {
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(report);
    let (command, rest) = line.split_first().ok_or("no command")?;
    let mut roce = Command::new(env!("CARGO_BIN_EXE_roce"));
    roce.args([command, "--switch", spec, "--switch-report"]).arg(&file).args(rest);
    let output = roce.output()?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(format!("{}: {complaint}", output.status).into());
    }
    assert!(complaint.lines().any(|line| line.starts_with("switch: ")), "{complaint}");
    Ok((String::from_utf8(output.stdout)?, serde_json::from_str(&fs::read_to_string(&file)?)?))
}

fn count(report: &Value, port: usize, name: &str) -> u64 {
    report["ports"][port][name].as_u64().unwrap_or_else(|| panic!("no {name} in {report}"))
}

#[tier1]
fn a_measurement_through_a_switch_has_its_rate_and_its_report() -> Outcome {
    let line = ["perf", "write", "bw", "--local", "-s", "65536", "-n", "200", "--json"];
    let (output, report) = through(&line, "rate=200M", "perf.json")?;
    let results: Value = serde_json::from_str(&output)?;
    assert!(results.is_object() || results.is_array(), "{output}");
    assert_eq!(report["spec"].as_str().map(|spec| spec.starts_with("rate=200000000,")), Some(true));
    // Port 0 is that of the server.
    assert!(count(&report, 0, "tx_bytes") > 200 * 65536, "{report}");
    assert_eq!(count(&report, 0, "dropped_frames") + count(&report, 1, "dropped_frames"), 0);
    assert!(report["seconds"].as_f64() >= Some(200.0 * 65536.0 * 8.0 / 200e6));
    let classes = report["ports"][0]["classes"].as_array().ok_or("no classes")?;
    assert!(classes.iter().all(|class| class["queue_bytes"]["samples"].is_u64()), "{report}");
    Ok(())
}

#[tier1]
fn ranks_of_a_collective_have_a_port_each() -> Outcome {
    let line = ["allreduce", "--local", "3", "-b", "64K", "-e", "64K", "-n", "3"];
    let (output, report) = through(&line, "rate=1G,ecn=20K:80K:0.2", "allreduce.json")?;
    assert!(output.contains("65536"), "{output}");
    assert_eq!(report["ports"].as_array().map(Vec::len), Some(3));
    for port in 0..3 {
        assert!(count(&report, port, "rx_bytes") > 3 * 65536, "{report}");
    }
    Ok(())
}

#[tier1("perftest")]
fn an_unmodified_program_runs_through_a_switch() -> Outcome {
    let line = ["run", "--local", "2", "--", "ib_write_bw", "-n", "300"];
    let (output, report) = through(&line, "rate=500M", "run.json")?;
    for rank in ["[0]", "[1]"] {
        assert!(output.contains(&format!("{rank}  65536      300 ")), "{output}");
    }
    assert!(count(&report, 0, "tx_bytes") > 300 * 65536, "{report}");
    Ok(())
}

#[tier1]
fn a_switch_without_its_interface_says_so() -> Outcome {
    let roce = Command::new(env!("CARGO_BIN_EXE_roce"))
        .args(["switch", "--port", "nothing0", "--port", "nothing1"])
        .output()?;
    let complaint = String::from_utf8_lossy(&roce.stderr);
    assert!(!roce.status.success() && complaint.contains("nothing0"), "{complaint}");
    Ok(())
}
