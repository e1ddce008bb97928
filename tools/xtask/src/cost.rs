//! What a packet costs in instructions, held by bounds.
//!
//! The `cost` program of `bench/cost` lets two endpoints in one process exchange messages, and its
//! program `engine_cost` the engines of two devices. Callgrind counts the instructions of one
//! side's turns, for two numbers of messages: the difference leaves out set-up and the way to full
//! speed. Counts do not depend on how fast or how busy the machine is.
//!
//! Moving payload and the CRC over it are told apart by the functions that do nothing else:
//! how many instructions those take depends on what the CPU offers, and on what valgrind knows
//! of it. They are shown, and no bound holds them.

mod callgrind;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use crate::stages::{Log, StageResult, Stages};
use crate::{Result, host, workspace};
use callgrind::Profile;

/// The programs, and what stands before the names of their workloads.
const PROGRAMS: [(&str, &str); 2] = [("cost", ""), ("engine_cost", "engine-")];

/// The functions of the programs that a side's whole work is in.
const SIDES: [&str; 2] = ["turn_of_requester", "turn_of_responder"];

/// Messages that make some hundred packets and more, in the shorter of two runs; the longer
/// has three times as many.
const LARGE_MESSAGES: u64 = 8;
const SMALL_MESSAGES: u64 = 4096;

/// What `bench/cost.toml` says.
#[derive(Debug, Deserialize)]
struct Bounds {
    /// Parts of the names of functions that only move payload, or compute its CRC.
    payload_functions: Vec<String>,
    /// Instructions for a data packet at most, by workload and side.
    at_most: BTreeMap<String, [f64; 2]>,
}

/// Instructions for a data packet at one side.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Cost {
    /// All but the payload's.
    protocol: f64,
    /// Moving payload and its CRC.
    payload: f64,
}

/// What one workload costs at its two sides.
#[derive(Clone, Debug, PartialEq)]
struct Row {
    workload: String,
    costs: [Cost; 2],
    at_most: [f64; 2],
}

/// Counts for people: prints the table.
///
/// # Errors
/// When a bound does not hold, or nothing could be counted.
pub(crate) fn run() -> Result<()> {
    let mut stages = Stages::new(true, |_| "cargo xtask cost".to_owned());
    stages.run("cost", |log| {
        let done = stage(log)?;
        print!("{}", fs::read_to_string(table_path())?);
        Ok(done)
    });
    stages.finish()
}

/// Counts, and compares with the bounds.
///
/// # Errors
/// When a bound does not hold.
pub(crate) fn stage(log: &Log) -> Result<StageResult> {
    if let Err(why) = host::install_missing(host::PROFILING_TOOLS) {
        return Ok(StageResult::Skipped(why.to_string()));
    }
    log.run(workspace::cargo().args(["build", "--release", "-p", "roce-cost", "--bins"]))?;
    let path = workspace::root().join(BOUNDS);
    let mut bounds: Bounds = toml::from_str(&fs::read_to_string(&path)?)
        .map_err(|error| format!("{}: {error}", path.display()))?;
    let mut rows = Vec::new();
    for (name, prefix) in PROGRAMS {
        let program = workspace::target().join("release").join(name);
        let listed = Command::new(&program).arg("--list").output()?;
        for workload in String::from_utf8(listed.stdout)?.lines() {
            let shown = format!("{prefix}{workload}");
            let at_most = bounds.at_most.remove(&shown);
            let at_most = at_most.ok_or_else(|| format!("{BOUNDS} has no bounds for {shown}"))?;
            let costs = measure(&program, workload, &bounds.payload_functions, log)?;
            rows.push(Row { workload: shown, costs, at_most });
        }
    }
    if let Some(unknown) = bounds.at_most.keys().next() {
        return Err(format!("{BOUNDS} has a bound for {unknown}, which does not exist").into());
    }
    let table = table(&rows);
    fs::write(table_path(), &table)?;
    log.write(&table)?;
    judge(&rows)
}

fn judge(rows: &[Row]) -> Result<StageResult> {
    let sides = rows.iter().flat_map(|row| {
        let of = |side: usize| (row, side, row.costs[side].protocol, row.at_most[side]);
        [of(0), of(1)]
    });
    let over: Vec<String> = sides
        .clone()
        .filter(|(_, _, cost, at_most)| cost > at_most)
        .map(|(row, side, cost, at_most)| {
            let name = NAMES[side];
            format!("{} at the {name}: {cost:.1} instead of {at_most:.1}", row.workload)
        })
        .collect();
    if over.is_empty() {
        let room = sides.map(|(_, _, cost, at_most)| 1.0 - cost / at_most);
        let least = room.reduce(f64::min).unwrap_or_default();
        let text = format!("{} workloads, {:.1} % below the bounds", rows.len(), least * 100.0);
        return Ok(StageResult::Passed(text));
    }
    let advice = "find the cause with callgrind_annotate, or raise the bound and say why";
    Err(format!("instructions a packet: {}; {advice}", over.join("; ")).into())
}

fn table(rows: &[Row]) -> String {
    let mut text = format!(
        "Instructions for each packet that carries payload, everything included but moving\n\
         payload and its CRC, which are shown behind the + (they depend on the CPU):\n\n\
         {:20} {:>32}   {:>32}\n",
        "", NAMES[0], NAMES[1]
    );
    for row in rows {
        text += &format!("{:20}", row.workload);
        for (cost, at_most) in row.costs.iter().zip(row.at_most) {
            text += &format!(
                " {:>8.1} (at most {at_most:>7.1}) + {:<6.0}",
                cost.protocol, cost.payload
            );
        }
        text.push('\n');
    }
    text
}

/// Instructions for a packet, at the requester and at the responder.
fn measure(program: &Path, workload: &str, payload: &[String], log: &Log) -> Result<[Cost; 2]> {
    let messages = if workload.contains("1m") { LARGE_MESSAGES } else { SMALL_MESSAGES };
    let mut costs = [Cost::default(); 2];
    for (cost, side) in costs.iter_mut().zip(SIDES) {
        let few = count(program, workload, messages, side, log)?;
        let many = count(program, workload, 3 * messages, side, log)?;
        let packets = many.packets.checked_sub(few.packets).filter(|packets| *packets > 0);
        let packets = packets.ok_or("more messages made no more packets")? as f64;
        let between = |of: &dyn Fn(&Profile) -> u64| {
            of(&many.profile).saturating_sub(of(&few.profile)) as f64 / packets
        };
        let is_payload = |name: &str| payload.iter().any(|part| name.contains(part.as_str()));
        cost.payload = between(&|profile| profile.sum_of(is_payload));
        cost.protocol = between(&|profile| profile.sum_of(|name| !is_payload(name)));
    }
    Ok(costs)
}

struct Counted {
    packets: u64,
    profile: Profile,
}

/// Runs the program under callgrind, counting only what `side` does.
fn count(program: &Path, workload: &str, messages: u64, side: &str, log: &Log) -> Result<Counted> {
    let folder = workspace::target().join("xtask");
    let name = program.file_name().unwrap_or_default().display();
    let file = folder.join(format!("callgrind-{name}-{workload}-{messages}-{side}.out"));
    let mut command = Command::new("valgrind");
    command
        .args(["--tool=callgrind", "--error-exitcode=9", "--dump-line=no"])
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(format!("--toggle-collect=*{side}*"))
        .arg(program)
        .args([workload, &messages.to_string()])
        // Where the stack begins, and with it how memory is aligned, must not vary.
        .env_clear();
    let output = command.output()?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        log.write(&String::from_utf8_lossy(&output.stderr))?;
        return Err(format!("valgrind {} {workload}: {}", program.display(), output.status).into());
    }
    let words: Vec<&str> = printed.split_whitespace().collect();
    let packets = match words[..] {
        ["data_packets", packets, ..] => packets.parse()?,
        _ => return Err(format!("the cost program printed {printed:?}").into()),
    };
    let profile = Profile::parse(&fs::read_to_string(&file)?)
        .map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(Counted { packets, profile })
}

fn table_path() -> PathBuf {
    workspace::target().join("xtask/cost.txt")
}

const BOUNDS: &str = "bench/cost.toml";
const NAMES: [&str; 2] = ["requester", "responder"];

#[cfg(test)]
mod tests {
    use super::*;

    fn row(protocol: [f64; 2]) -> Row {
        let costs = protocol.map(|protocol| Cost { protocol, payload: 1000.0 });
        Row { workload: "write-8".to_owned(), costs, at_most: [500.0, 400.0] }
    }

    #[test]
    fn a_cost_above_its_bound_fails_whatever_the_payload_costs() {
        assert!(matches!(judge(&[row([500.0, 399.0])]), Ok(StageResult::Passed(_))));
        let why = judge(&[row([490.0, 400.5])]).unwrap_err().to_string();
        assert!(why.contains("write-8 at the responder: 400.5 instead of 400.0"), "{why}");
        assert!(!why.contains("requester"), "{why}");
    }

    #[test]
    fn every_workload_and_side_is_in_the_table() {
        let text = table(&[row([490.0, 400.5])]);
        assert!(text.contains("490.0 (at most   500.0) + 1000"), "{text}");
        assert!(text.contains("400.5 (at most   400.0) + 1000"), "{text}");
    }
}
