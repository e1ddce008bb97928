//! `interop`: boots a guest with rdma_rxe, runs the matrix, prints it. Red cells end it with 1.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use roce_tests::interop::matrix::{self, Direction, Plan, Verdict};
use roce_tests::interop::{World, report};

/// Run this stack against the kernel's rdma_rxe in a guest, and print the matrix.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask interop")]
struct Arguments {
    /// Print the cells as JSON instead of tables.
    #[arg(long)]
    json: bool,
    /// Run only cells whose group, row or column contains this; may be given several times, and
    /// then all must be there.
    #[arg(long)]
    only: Vec<String>,
    /// Let rxe be on both sides: shows that the matrix itself is right.
    #[arg(long)]
    self_check: bool,
    /// Run the cells so many times, or until one is red.
    #[arg(long, default_value_t = 1)]
    rounds: u32,
    /// Only say which cells there are.
    #[arg(long)]
    list: bool,
    /// Let our side record its packets there, as pcapng; one cell after the other writes it anew.
    #[arg(long)]
    pcap: Option<PathBuf>,
    /// Whether our side sends trains: on, off or auto.
    #[arg(long)]
    trains: Option<OsString>,
    /// Where the guest is built or was.
    #[arg(long, default_value = "target")]
    target: PathBuf,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("interop: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether all cells are green.
fn run(arguments: &Arguments) -> Result<bool, Box<dyn std::error::Error>> {
    let mut ours = Vec::new();
    if let Some(file) = &arguments.pcap {
        ours.extend(["--pcap".into(), file.canonicalize().unwrap_or_else(|_| file.clone()).into()]);
    }
    if let Some(mode) = &arguments.trains {
        ours.extend(["--trains".into(), mode.clone()]);
    }
    let directions = match arguments.self_check {
        true => vec![Direction::RxeToRxe],
        false => vec![Direction::OursToRxe, Direction::RxeToOurs],
    };
    let mut cells = matrix::cells(&Plan { directions, ours });
    cells.retain(|cell| arguments.only.iter().all(|only| cell.name().contains(only.as_str())));
    if arguments.list {
        cells.iter().for_each(|cell| println!("{}", cell.name()));
        return Ok(true);
    }
    let image = World::image(&arguments.target)?;
    roce_netlab::enter_user_namespace_if_needed()?;
    let world = World::boot(&image)?;
    let mut verdicts = Vec::new();
    for _ in 0..arguments.rounds {
        verdicts = matrix::run(&world, &cells, tell)?;
        if verdicts.iter().any(|verdict| verdict.fault.is_some()) {
            break;
        }
    }
    if arguments.json {
        println!("{}", report::json(&verdicts));
    } else {
        print!("{}", report::tables(&verdicts));
    }
    world.guest.power_off()?;
    Ok(verdicts.iter().all(|verdict| verdict.fault.is_none()))
}

/// A line on a cell that just ended.
fn tell(verdict: &Verdict) {
    let word = if verdict.fault.is_none() { "ok" } else { "RED" };
    eprintln!("{word:>4} {} ({:.1} s)", verdict.name(), verdict.took.as_secs_f32());
    if let Some(fault) = &verdict.fault {
        eprintln!("     {fault}");
    }
}
