//! RoCEv2 in user space: devices, pingpong, perf, and unmodified programs.

#![forbid(unsafe_code)]

mod as_text;
mod backend;
mod capture_pipe;
mod cli;
mod collective;
mod congestion;
mod devices;
mod dissect;
mod env;
mod error;
mod faults;
mod generate;
mod lab;
mod ladder;
mod link;
mod loader_variables;
mod local;
mod log;
mod output;
mod parent_death;
mod parse_number;
mod perf;
mod pingpong;
mod rails;
mod ranks;
mod run;
mod send;
mod sentence;
mod simulate;
mod status;
mod switch;
mod termination;
mod this_program;
mod traffic;
mod view;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

fn main() -> ExitCode {
    // This program also starts itself as /proc/self/exe. Without a name it is `exe` in captures.
    let _named = nix::sys::prctl::set_name(c"roce");
    let cli = cli::Cli::parse();
    log::start();
    let outcome = match cli.command {
        cli::Command::Collective(command) => collective::run(&command),
        cli::Command::Devices(options) => devices::run(&options),
        cli::Command::Dissect(options) => dissect::run(&options),
        cli::Command::Pingpong(options) => pingpong::run(&options),
        cli::Command::Perf(options) => perf::run(&options),
        cli::Command::Lab(options) => lab::run(&options),
        cli::Command::Ladder(options) => ladder::run(&options),
        cli::Command::Simulate(options) => simulate::run(&options),
        cli::Command::Run(options) => run::run(&options),
        cli::Command::Env(options) => env::run(&options),
        cli::Command::Send(options) => send::run(&options),
        cli::Command::Switch(options) => switch::run(&options),
        cli::Command::View(options) => view::run(&options),
        cli::Command::RunStage(options) => run::run_stage(&options),
        cli::Command::Generate(options) => generate::run(&options, &cli::Cli::command()),
    };
    outcome.map_or_else(error::report, |()| ExitCode::SUCCESS)
}
