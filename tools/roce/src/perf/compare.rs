//! `--compare`: roce beside TCP in the same private network.
//!
//! Rounds are interleaved, so that other load on the machine affects all candidates alike, and
//! medians are shown. iperf3 measures over the same veth pair, in the same namespaces,
//! with the same MTU.

use std::process::{Command, Stdio};
use std::time::Duration;

use roce_netns::process::{Launch, Output};
use serde_json::Value;

use super::options::Options;
use super::params::{Test, Verb};
use crate::error::{CliError, Result};
use crate::local::{self, Pair};
use crate::output::print;

/// Runs the comparison and prints it.
pub(crate) fn run(options: &Options) -> Result {
    if (options.verb, options.test) != (Verb::Write, Test::Bw) {
        return Err(CliError::new("--compare goes with `perf write bw`"));
    }
    let pair = Pair::new(options.traffic.link_mtu, 1, &options.traffic.switch)?;
    let installed = Command::new("iperf3").arg("--version").stdout(Stdio::null()).status().is_ok();
    if !installed {
        eprintln!("iperf3 is not installed (apt install iperf3): only roce is measured");
    }
    let mut candidates = vec![Candidate::new("roce perf write bw", None)];
    if installed {
        candidates.extend([
            Candidate::new("iperf3 (TCP, bbr)", Some("bbr")),
            Candidate::new("iperf3 (TCP, cubic)", Some("cubic")),
        ]);
    }
    for round in 1..=ROUNDS {
        for candidate in &mut candidates {
            if candidate.error.is_some() {
                continue;
            }
            eprintln!("round {round} of {ROUNDS}: {}", candidate.name);
            match candidate.congestion_control {
                None => candidate.results.push(run_roce(options, &pair)?),
                Some(algorithm) => match run_iperf3(&pair, algorithm) {
                    Ok(result) => candidate.results.push(result),
                    Err(why) => candidate.error = Some(why),
                },
            }
        }
    }
    print(&table(&candidates, options.traffic.link_mtu))
}

/// A program to compare, with its results in Gb/sec.
#[derive(Debug)]
struct Candidate {
    name: &'static str,
    congestion_control: Option<&'static str>,
    results: Vec<f64>,
    error: Option<String>,
}

impl Candidate {
    fn new(name: &'static str, congestion_control: Option<&'static str>) -> Self {
        Self { name, congestion_control, results: Vec::new(), error: None }
    }

    fn median(&self) -> Option<f64> {
        let mut sorted = self.results.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied()
    }
}

fn table(candidates: &[Candidate], link_mtu: u32) -> String {
    let mut text = format!("Gb/sec over a veth pair of MTU {link_mtu}, medians:\n");
    let ours = candidates.first().and_then(Candidate::median);
    for candidate in candidates {
        let Some(median) = candidate.median() else {
            let why = candidate.error.as_deref().unwrap_or("no result");
            text += &format!("  {:20}  not measured: {why}\n", candidate.name);
            continue;
        };
        let each: Vec<String> =
            candidate.results.iter().map(|result| format!("{result:.2}")).collect();
        text += &format!("  {:20}  {median:7.2}  (each: {})", candidate.name, each.join(", "));
        if let (Some(ours), Some(algorithm)) = (ours, candidate.congestion_control) {
            text += &format!("  roce / {algorithm} = {:.2}", ours / median);
        }
        text += "\n";
    }
    text
}

/// Runs both ends of this command, for a few seconds unless the user chose a length.
fn run_roce(options: &Options, pair: &Pair) -> Result<f64> {
    let mut more = vec!["--json".to_owned()];
    if options.duration.is_none() && options.iterations.is_none() {
        more.push(format!("--duration={SECONDS}"));
        more.push("--margin=0.5".to_owned());
    }
    let output = pair.run_command(&more, Vec::new())?;
    let report: Value = serde_json::from_slice(&output)?;
    let average = report["results"][0]["BW_average"].as_f64();
    let average = average.ok_or_else(|| CliError::new("the run gave no result"))?;
    let is_gbits = report["test_info"]["BW_unit"] == "Gb/sec";
    Ok(if is_gbits { average } else { average * f64::from(1 << 20) * 8.0 / 1e9 })
}

/// Runs iperf3; the error says why it did not run.
fn run_iperf3(pair: &Pair, algorithm: &str) -> Result<f64, String> {
    let iperf3 = || Launch::new("iperf3").stderr(Output::Discard).grace(Duration::ZERO);
    // It is ended at the end of this function: it waits without a timeout if its client never connected.
    let server = iperf3().args(["--server", "--one-off", "--forceflush"]).start_in(&pair.server);
    let server = server.map_err(|error| format!("iperf3 server: {error}"))?;
    let mut line = String::new();
    while !line.starts_with("Server listening") {
        let next = server.read_line(Duration::MAX).ok().flatten();
        line = next.ok_or("iperf3 server did not start")?;
    }
    let seconds = SECONDS.to_string();
    let client = iperf3().args(["--client", local::SERVER, "--json", "--time", &seconds]);
    let client = client.args(["-C", algorithm]).start_in(&pair.client);
    let output = client.and_then(|client| client.wait(Duration::MAX));
    let output = output.map_err(|error| format!("iperf3 client: {error}"))?;
    let report: Value = serde_json::from_str(&output.stdout)
        .map_err(|error| format!("iperf3 printed no JSON: {error}"))?;
    match (&report["error"], report["end"]["sum_received"]["bits_per_second"].as_f64()) {
        (Value::String(why), _) => Err(why.clone()),
        (_, Some(bits)) => Ok(bits / 1e9),
        _ => Err("iperf3 reported no bandwidth".to_owned()),
    }
}

const ROUNDS: u32 = 3;
const SECONDS: u32 = 3;

#[cfg(test)]
mod tests {
    use super::{Candidate, table};

    #[test]
    fn the_table_shows_medians_ratios_and_why_something_is_missing() {
        let mut candidates = [
            Candidate::new("roce perf write bw", None),
            Candidate::new("iperf3 (TCP, bbr)", Some("bbr")),
            Candidate::new("iperf3 (TCP, cubic)", Some("cubic")),
        ];
        candidates[0].results = vec![40.0, 60.0, 50.0];
        candidates[1].results = vec![20.0, 25.0, 30.0];
        candidates[2].error = Some("unable to set TCP congestion control".to_owned());
        insta::assert_snapshot!("compare", table(&candidates, 4200));
    }
}
