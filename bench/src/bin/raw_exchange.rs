//! The floor of a large allreduce over two ranks; see `roce_bench::raw::exchange`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use roce_bench::program;
use roce_bench::raw::exchange::{self, Options};

fn main() -> ExitCode {
    program::run(|options: &Options| options.end.cpu, exchange::run)
}
