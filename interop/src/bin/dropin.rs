//! `dropin`: runs unmodified RDMA programs on our library, and prints what works. Red lines end it
//! with 1.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use roce_interop::dropin::{self, local, open_mpi, pypi, python_suite, qemu, rxe};
use roce_interop::matrix::{self, Case};
use roce_interop::{World, report};

/// Run unmodified RDMA programs on our libibverbs, and print what works.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask dropin")]
struct Arguments {
    /// Print the lines as JSON instead of tables.
    #[arg(long)]
    json: bool,
    /// Run a part, in a few minutes.
    #[arg(long)]
    quick: bool,
    /// Run only lines whose table, text or column contains this; may be given several times, and
    /// then all must be there.
    #[arg(long)]
    only: Vec<String>,
    /// Run only the table of this name; may be given several times.
    #[arg(long)]
    table: Vec<String>,
    /// Only print which lines there are.
    #[arg(long)]
    list: bool,
    /// Leave out the lines against rxe in the guest.
    #[arg(long)]
    no_guest: bool,
    /// Folder in which the guest is built or was.
    #[arg(long, default_value = "target")]
    target: PathBuf,
}

impl Arguments {
    /// Returns true if the table of a name is run.
    fn has_table(&self, name: &str) -> bool {
        self.table.is_empty() || self.table.iter().any(|it| it == name)
    }
}

fn main() -> ExitCode {
    report::exit("dropin", run(&Arguments::parse()))
}

/// Returns true if all lines are green.
fn run(arguments: &Arguments) -> Result<bool, Box<dyn std::error::Error>> {
    let programs = dropin::programs(arguments.quick);
    let mut private = local::cases(&programs);
    private.extend(python_suite::cases());
    private.extend(open_mpi::cases());
    private.extend(qemu::cases(arguments.quick));
    if !arguments.quick {
        private.extend(pypi::cases(&arguments.target));
    }
    private.retain(|case| arguments.has_table(case.group) && case.matches(&arguments.only));
    let mut beside_rxe = if arguments.no_guest { Vec::new() } else { rxe::cases(&programs) };
    beside_rxe.retain(|case| arguments.has_table(case.group) && case.matches(&arguments.only));
    if arguments.list {
        private.iter().map(Case::name).for_each(|name| println!("{name}"));
        beside_rxe.iter().map(Case::name).for_each(|name| println!("{name}"));
        return Ok(true);
    }
    let mut verdicts = matrix::run(&local::PrivateHosts, &private, report::tell)?;
    if !beside_rxe.is_empty() {
        let image = World::image(&arguments.target)?;
        roce_netns::enter_user_namespace_if_needed()?;
        let world = World::boot(&image)?;
        verdicts.extend(matrix::run(&world, &beside_rxe, report::tell)?);
        world.guest.power_off()?;
    }
    report::print(&verdicts, arguments.json);
    Ok(!verdicts.is_empty() && verdicts.iter().all(|verdict| verdict.fault.is_none()))
}
