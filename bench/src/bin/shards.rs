//! Threads of one process, over one shard of a device or two; see `roce_bench::shards`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use roce_bench::program;
use roce_bench::shards::{self, Options};

fn main() -> ExitCode {
    program::run(|_: &Options| None, shards::run)
}
