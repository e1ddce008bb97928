//! Small messages over sockets; see `roce_bench::sockets::rate`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use roce_bench::program;
use roce_bench::sockets::rate::{self, Options};

fn main() -> ExitCode {
    program::run(|options: &Options| options.end.cpu, rate::run)
}
