//! The floor of a small allreduce; see `roce_bench::raw::allreduce`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use roce_bench::program;
use roce_bench::raw::allreduce::{self, Options};

fn main() -> ExitCode {
    program::run(|options: &Options| options.cpu, allreduce::run)
}
