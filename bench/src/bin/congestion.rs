//! Congestion controls beside each other, with real packets; see `docs/congestion.md`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use roce_bench::congestion::{
    Control, Fabric, Failure, Outcome, Scenario, beside_simulation, plot, table,
};
use roce_bench::report::put_between_markers;
use serde_json::json;

/// Measure congestion controls: senders that share a receiver, through switches with queues
///
/// Hosts, switches and queues are in private network namespaces of this machine; it needs no root.
/// Progress goes to standard error, the table to standard output.
#[derive(Debug, Parser)]
struct Options {
    /// Senders to one receiver
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "4,8,32")]
    senders: Vec<usize>,
    /// Congestion controls
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = control)]
    #[arg(default_value = "loss,ecn,dcqcn,dcqcn-scaled,swift,swift-scaled")]
    cc: Vec<Control>,
    /// What connects the hosts: lossy and PFC are roce switch, tbf a shaped bridge of the kernel
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = fabric)]
    #[arg(default_value = "lossy,PFC,tbf")]
    fabric: Vec<Fabric>,
    /// Mbit/s of every link
    #[arg(long, value_name = "N", default_value_t = 200)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=10_000))]
    rate: u64,
    /// Seconds of each measurement
    #[arg(long, value_name = "S", default_value_t = 3.0, value_parser = seconds)]
    time: f64,
    /// Rounds, in turn; the table has medians
    #[arg(long, value_name = "N", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Also run the scenarios of roce switch in the simulator, and print both beside each other
    #[arg(long)]
    simulate: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Write the plots to a file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Replace the table between the markers of a Markdown file
    #[arg(long, value_name = "FILE")]
    into: Option<PathBuf>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("congestion: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), Failure> {
    roce_netns::enter_user_namespace_if_needed()?;
    let scenarios: Vec<Scenario> = options
        .senders
        .iter()
        .flat_map(|senders| options.fabric.iter().map(move |fabric| (*senders, *fabric)))
        .flat_map(|(senders, fabric)| {
            options.cc.iter().map(move |control| Scenario {
                rate: options.rate * 1_000_000,
                time: Duration::from_secs_f64(options.time),
                ..Scenario::new(senders, *control, fabric)
            })
        })
        .collect();
    let mut outcomes: Vec<Vec<Outcome>> = vec![Vec::new(); scenarios.len()];
    for round in 1..=options.rounds {
        for (scenario, outcomes) in scenarios.iter().zip(&mut outcomes) {
            let outcome = scenario.run()?;
            let Scenario { senders, fabric, control, .. } = scenario;
            let (fabric, control) = (fabric.name(), control.name);
            eprintln!(
                "round {round} {senders}:1 {fabric} {control}: {:.1} Mbit/s",
                outcome.goodput
            );
            outcomes.push(outcome);
        }
    }
    let rows: Vec<(Scenario, Outcome)> =
        scenarios.into_iter().zip(outcomes.iter().map(|it| Outcome::median(it))).collect();
    if let Some(path) = &options.svg {
        std::fs::write(path, plot(&rows).map_err(Failure)?)?;
    }
    let mut text = table(&rows);
    if options.simulate {
        let mut both = Vec::new();
        for (scenario, outcome) in rows.iter().filter(|(it, _)| it.fabric != Fabric::Tbf) {
            both.push((*scenario, *outcome, scenario.simulate()?));
        }
        text += &format!("\n{}", beside_simulation(&both));
    }
    if let Some(path) = &options.into {
        let before = std::fs::read_to_string(path)?;
        let after = put_between_markers(&before, &text)
            .ok_or_else(|| Failure(format!("{} has no markers", path.display())))?;
        std::fs::write(path, after)?;
    }
    if !options.json {
        print!("{text}");
        return Ok(());
    }
    let row = |((scenario, median), rounds): (&(Scenario, Outcome), &Vec<Outcome>)| {
        json!({
            "senders": scenario.senders,
            "fabric": scenario.fabric.name(),
            "control": scenario.control.name,
            "spec": scenario.control.spec,
            "bits_per_second": scenario.rate,
            "buffer_bytes": scenario.buffer_bytes(),
            "median": median,
            "rounds": rounds,
        })
    };
    let rows: Vec<_> = rows.iter().zip(&outcomes).map(row).collect();
    println!(
        "{}",
        serde_json::to_string_pretty(&rows).map_err(|error| Failure(error.to_string()))?
    );
    Ok(())
}

fn control(text: &str) -> Result<Control, String> {
    Control::named(text).ok_or_else(|| {
        let names = Control::ALL.map(|control| control.name);
        format!("use {}", names.join(", "))
    })
}

fn fabric(text: &str) -> Result<Fabric, String> {
    let found = Fabric::ALL.into_iter().find(|fabric| fabric.name() == text);
    found.ok_or_else(|| "use lossy, PFC or tbf".to_owned())
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=3600.0).contains(seconds));
    seconds.ok_or_else(|| "use 0.1 to 3600".to_owned())
}
