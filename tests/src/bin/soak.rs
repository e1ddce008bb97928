//! `soak`: see `roce_tests::soak`. Ends with 1 if something happened that must not.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use roce_tests::soak::{self, Options, Role};

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns whether nothing happened that must not.
fn run(options: &Options) -> soak::Result<bool> {
    match &options.role {
        Some(Role::Survivor(place)) => soak::run_survivor(place).map(|()| true),
        Some(Role::Peer(place)) => soak::run_peer(place).map(|()| true),
        None => {
            roce_netns::enter_user_namespace_if_needed()?;
            let program = std::env::current_exe()?;
            let summary = soak::run(options, &program, &mut |line| println!("{line}"))?;
            println!("{summary}");
            Ok(summary.violations.is_empty())
        }
    }
}
