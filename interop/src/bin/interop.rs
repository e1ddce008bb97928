//! `interop`: boots guests with rdma_rxe, runs the matrix, prints it. Red cases end it with 1.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use roce_guest::{Architecture, Kernel};
use roce_interop::cases::placement;
use roce_interop::matrix::{self, Case, Direction, Plan, Verdict};
use roce_interop::{RingWorld, Testbed, World, report, ring_matrix};

/// Run this stack against the kernel's rdma_rxe in guests, and print the matrix.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask interop")]
struct Arguments {
    /// Print the cases as JSON instead of tables.
    #[arg(long)]
    json: bool,
    /// Run only cases whose group, row or column contains this; may be given several times, and
    /// then all must be there.
    #[arg(long)]
    only: Vec<String>,
    /// Let rxe be on both sides: shows that the matrix itself is right.
    #[arg(long)]
    self_check: bool,
    /// Run the cases so many times, or until one is red.
    #[arg(long, default_value_t = 1)]
    rounds: u32,
    /// Only say which cases there are.
    #[arg(long)]
    list: bool,
    /// Let our side record its packets there, as pcapng. Cases are appended one after the other; one in which
    /// rxe sends and packets get lost begins the file anew.
    #[arg(long)]
    pcap: Option<PathBuf>,
    /// Whether our side sends trains: on, off or auto.
    #[arg(long)]
    gso: Option<OsString>,
    /// Suite of the Debian archive whose newest kernel the guest boots, such as bookworm-backports;
    /// without it the one that ROCE_GUEST_KERNEL names, or that of this machine's release.
    #[arg(long)]
    kernel: Option<String>,
    /// Architecture of the guests, by Debian's name: amd64 or arm64.
    #[arg(long, default_value = "amd64")]
    architecture: String,
    /// Where the guest is built or was.
    #[arg(long, default_value = "target")]
    target: PathBuf,
}

fn main() -> ExitCode {
    report::exit("interop", run(&Arguments::parse()))
}

/// Whether all cases are green.
fn run(arguments: &Arguments) -> Result<bool, Box<dyn std::error::Error>> {
    let mut ours = Vec::new();
    if let Some(file) = &arguments.pcap {
        ours.extend(["--pcap".into(), file.canonicalize().unwrap_or_else(|_| file.clone()).into()]);
    }
    if let Some(mode) = &arguments.gso {
        ours.extend(["--gso".into(), mode.clone()]);
    }
    let directions = match arguments.self_check {
        true => vec![Direction::RxeToRxe],
        false => vec![Direction::OursToRxe, Direction::RxeToOurs],
    };
    let mut cases = matrix::cases(&Plan { directions, ours });
    let mut rings = if arguments.self_check { Vec::new() } else { ring_matrix::cases() };
    cases.retain(|case| case.matches(&arguments.only));
    rings.retain(|case| case.matches(&arguments.only));
    if arguments.list {
        cases.iter().map(Case::name).for_each(|name| println!("{name}"));
        rings.iter().map(Case::name).for_each(|name| println!("{name}"));
        return Ok(true);
    }
    let kernel = Kernel::chosen(arguments.kernel.as_deref())?;
    let architecture = Architecture::of_debian(&arguments.architecture)
        .ok_or_else(|| format!("there is no guest of {:?}", arguments.architecture))?;
    let image = World::image_with(&arguments.target, architecture, &kernel)?;
    let release = image.kernel_release();
    eprintln!("the guest boots Linux {release}");
    if !placement::is_in(release) {
        eprintln!(
            "it has neither ATOMIC WRITE nor FLUSH, which came with 6.2, nor on-demand paging: their \
             cases are left out"
        );
        let newer = [matrix::NEWER_OPERATIONS, matrix::PAGED_MEMORY];
        cases.retain(|case| !newer.contains(&case.group));
    }
    if cases.is_empty() && rings.is_empty() {
        return Err("no case has these words in its name; --list prints the names".into());
    }
    roce_netns::enter_user_namespace_if_needed()?;
    if roce_netns::is_in_user_namespace() {
        eprintln!("AF_XDP needs root: its cases are left out");
        cases.retain(|case| case.group != matrix::XDP_SOCKETS);
    }
    let mut verdicts = Vec::new();
    if !cases.is_empty() {
        let world = World::boot(&image)?;
        verdicts = rounds(arguments, &world, &cases)?;
        world.guest.power_off()?;
    }
    if !rings.is_empty() {
        let world = RingWorld::boot(&image)?;
        verdicts.extend(rounds(arguments, &world, &rings)?);
        world.power_off()?;
    }
    report::print(&verdicts, arguments.json);
    Ok(verdicts.iter().all(|verdict| verdict.fault.is_none()))
}

/// Runs the cases of one world as often as asked for.
fn rounds<W: Testbed>(
    arguments: &Arguments,
    world: &W,
    cases: &[Case<W>],
) -> Result<Vec<Verdict>, Box<dyn std::error::Error>> {
    let mut verdicts = Vec::new();
    for _ in 0..arguments.rounds {
        verdicts = matrix::run(world, cases, report::tell)?;
        if verdicts.iter().any(|verdict| verdict.fault.is_some()) {
            break;
        }
    }
    Ok(verdicts)
}
