//! Carries messages between two endpoints under a profiler: see `cargo xtask cost`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use roce_cost::{Side, program};

fn main() -> ExitCode {
    program::run::<Side>()
}
