//! The floor of latency; see `roce_bench::raw::pingpong`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use roce_bench::program;
use roce_bench::raw::pingpong::{self, Options};

fn main() -> ExitCode {
    program::run(|options: &Options| options.end.cpu, pingpong::run)
}
