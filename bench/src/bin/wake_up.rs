//! A message to a peer that sleeps; see `roce_bench::wake_up`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use roce_bench::program;
use roce_bench::wake_up::{self, Options};

fn main() -> ExitCode {
    program::run(|options: &Options| options.end.cpu, wake_up::run)
}
