//! Half round trips over sockets; see `roce_bench::sockets::pingpong`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use roce_bench::program;
use roce_bench::sockets::pingpong::{self, Options};

fn main() -> ExitCode {
    program::run(|options: &Options| options.end.cpu, pingpong::run)
}
