//! TCP connections a second; see `roce_bench::sockets::connections`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use roce_bench::program;
use roce_bench::sockets::connections::{self, Options};

fn main() -> ExitCode {
    program::run(|options: &Options| options.end.cpu, connections::run)
}
