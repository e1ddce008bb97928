//! Congestion controls beside each other, with real packets; see `docs/congestion.md`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use roce_bench::congestion::{
    Control, Fabric, Failure, Outcome, Row, Scenario, beside_simulation, plot, put_tables, table,
};

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
    /// Rounds, in turn; the table has medians. 0 with --simulate: no real packets
    #[arg(long, value_name = "N", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=100))]
    rounds: u32,
    /// Also run the scenarios of roce switch in the simulator, and print both beside each other
    #[arg(long)]
    simulate: bool,
    /// Print JSON, the simulated outcomes too
    #[arg(long)]
    json: bool,
    /// Write the plots to a file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Replace the tables between the markers `bench` and, with --simulate, `simulated` of a
    /// Markdown file
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
    if options.rounds == 0 && (!options.simulate || options.svg.is_some() || options.into.is_some())
    {
        let why = "--rounds 0 measures nothing: use it with --simulate, without --svg and --into";
        return Err(why.into());
    }
    if options.rounds > 0 {
        roce_netns::enter_user_namespace_if_needed()?;
    }
    let mut rows = rows(options);
    for round in 1..=options.rounds {
        for row in &mut rows {
            let outcome = row.scenario.run()?;
            let Scenario { senders, fabric, control, .. } = row.scenario;
            let (fabric, control) = (fabric.name(), control.name);
            eprintln!(
                "round {round} {senders}:1 {fabric} {control}: {:.1} Mbit/s",
                outcome.goodput
            );
            row.rounds.push(outcome);
        }
    }
    if options.simulate {
        for row in rows.iter_mut().filter(|row| row.scenario.fabric.is_simulated()) {
            row.simulated = Some(row.scenario.simulate()?);
        }
    }
    let measured: Vec<(Scenario, Outcome)> =
        rows.iter().map(|row| (row.scenario, row.median())).collect();
    if let Some(path) = &options.svg {
        std::fs::write(path, plot(&measured)?)?;
    }
    if let Some(path) = &options.into {
        let page = std::fs::read_to_string(path)?;
        let page =
            put_tables(&page, &rows).map_err(|error| format!("{}: {error}", path.display()))?;
        std::fs::write(path, page)?;
    }
    if options.json {
        let rows: Vec<_> = rows.iter().map(Row::to_json).collect();
        let text = serde_json::to_string_pretty(&rows);
        println!("{}", text?);
    } else if options.rounds == 0 {
        let simulated = |row: &Row| Some((row.scenario, row.simulated?));
        print!("{}", table(&rows.iter().filter_map(simulated).collect::<Vec<_>>()));
    } else {
        print!("{}", table(&measured));
        if options.simulate {
            print!("\n{}", beside_simulation(&rows));
        }
    }
    Ok(())
}

/// Returns the scenarios of the options, without outcomes.
fn rows(options: &Options) -> Vec<Row> {
    let mut rows = Vec::new();
    for senders in &options.senders {
        for fabric in &options.fabric {
            for control in &options.cc {
                let scenario = Scenario {
                    rate: options.rate * 1_000_000,
                    time: Duration::from_secs_f64(options.time),
                    ..Scenario::new(*senders, *control, *fabric)
                };
                rows.push(Row { scenario, rounds: Vec::new(), simulated: None });
            }
        }
    }
    rows
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
