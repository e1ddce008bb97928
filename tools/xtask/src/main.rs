//! Maintainers' commands: tests by tier, the rxe guest, the layer check.
//!
//! `cargo xtask test` is what CI runs and what a change is judged by; `cargo xtask help` lists
//! the rest. Everything that is fetched or built goes below `target/`.
#![forbid(unsafe_code)]

mod action;
mod arm64;
mod bench;
mod binaries;
mod book;
mod cost;
mod debian_root;
mod dist;
mod dropin;
mod fuzz;
mod host;
mod interop;
mod layers;
mod namespace;
mod package;
mod picture;
mod private_host;
mod result;
mod rules;
mod rxe;
mod semver;
mod signals;
mod soak;
mod stacks;
mod stages;
mod table;
mod test;
mod workspace;
mod zig;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use self::result::Result;

/// Maintainers' commands.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check everything: format, lints, documentation, layers, tests of tiers 0 to 2, fuzzing. Or run
    /// the tests of a name.
    Test(test::Options),
    /// Compare the crates' dependencies with the table in ARCHITECTURE.md, and the circles of their
    /// files with tools/xtask/circles.toml.
    Layers(layers::Options),
    /// Print the rules of the specifications that the code follows, with their places and tests.
    Rules(rules::Options),
    /// Run this stack against the kernel's rdma_rxe in guests and print the matrix.
    Interop {
        /// Architecture of the guests, by Debian's name: amd64 or arm64.
        #[arg(long, default_value = "amd64")]
        architecture: String,
        /// Passed on: `--json`, `--only TEXT`, ... (`--help` lists them).
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Execute sequences of calls on the kernel's rdma_rxe in a guest and on our libraries, and compare them.
    #[command(disable_help_flag = true)]
    Sequences {
        /// Passed on: `--count N`, `--show SEED`, ... (`--help` lists them).
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Run unmodified RDMA programs on our libibverbs and print which work; installs them.
    Dropin {
        /// Run programs of Debian 12, 13 and sid, with the librdmacm of each, in roots made for that (as
        /// root) instead.
        #[arg(long)]
        releases: bool,
        /// Run the programs and the Python suites of rdma-core of Debian 13 and sid in roots made for that
        /// (as root) instead.
        #[arg(long, conflicts_with = "releases")]
        suite: bool,
        /// Passed on: `--quick`, `--json`, `--only TEXT`, ... (`--help` lists them).
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Boot a guest with rdma_rxe and a shell, on a tap, to experiment with.
    Rxe(rxe::Options),
    /// Measure this stack beside other programs; installs those that are missing.
    #[command(disable_help_flag = true)]
    Bench {
        /// Passed on: `--quick`, `--only ROW`, ... (`--help` lists them). With `--no-install`
        /// nothing is installed.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Kill and restart processes of connected pairs on a lossy network; judge the others.
    #[command(disable_help_flag = true)]
    Soak {
        /// Passed on: `--minutes M`, `--seed N`, ... (`--help` lists them).
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Count the instructions that a packet costs, and compare with `bench/cost.toml`.
    Cost,
    /// Lay out an installation in `target/dist`, with archives and packages of it.
    Dist(dist::Options),
    /// Run the steps of `action.yml`, the workflows of `docs/ci` and the pods of `docs/kubernetes` in fresh
    /// Debian roots (as root).
    Action,
    /// Run the tests of crates with code for arm64 on an emulated processor; installs the emulator.
    Arm64(arm64::Options),
    /// Build the book of lessons as pages in `target/book`; installs mdBook below `target` if it is missing.
    Book,
    /// Pack the crates that are published, and build each from its package alone.
    Package,
    /// Compare the public items of the crates that are published with those of an earlier revision; installs
    /// cargo-semver-checks below `target` if it is missing.
    Semver(semver::Options),
    /// Run the command that README.md shows, and draw its output into docs/allreduce.svg.
    Picture,
    /// Run each fuzz target for a while.
    Fuzz(fuzz::Options),
    /// Run a program inside a user namespace of its own where that is needed to be root.
    #[command(hide = true)]
    InNamespace {
        /// The program and its arguments.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<OsString>,
    },
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Test(options) => signals::restore_defaults().and_then(|()| test::run(&options)),
        Command::Layers(options) => layers::run(&options),
        Command::Rules(options) => rules::run(&options),
        Command::Interop { architecture, arguments } => interop::run(&architecture, &arguments),
        Command::Sequences { arguments } => interop::sequences(&arguments),
        Command::Dropin { releases, suite, arguments } => dropin::run(releases, suite, &arguments),
        Command::Rxe(options) => rxe::run(&options),
        Command::Bench { arguments } => bench::run(&arguments),
        Command::Soak { arguments } => soak::run(&arguments),
        Command::Cost => cost::run(),
        Command::Dist(options) => dist::run(&options),
        Command::Action => action::run(),
        Command::Arm64(options) => arm64::run(options),
        Command::Book => book::run(),
        Command::Package => package::run(),
        Command::Semver(options) => semver::run(&options),
        Command::Picture => picture::run(),
        Command::Fuzz(options) => fuzz::run(&options),
        Command::InNamespace { command } => namespace::exec(&command),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}
