//! The ceiling of throughput; see `roce_bench::raw::gso`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use roce_bench::program;
use roce_bench::raw::gso::{self, Options};

fn main() -> ExitCode {
    program::run(|options: &Options| options.end.cpu, gso::run)
}
