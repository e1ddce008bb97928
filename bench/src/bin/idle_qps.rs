//! Queue pairs with nothing to do; see `roce_bench::idle`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use roce_bench::idle::{self, Options};
use roce_bench::program;

fn main() -> ExitCode {
    program::run(|options: &Options| options.end.cpu, idle::run)
}
