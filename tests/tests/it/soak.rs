//! The soak, for a short time: `cargo xtask soak` runs it for as long as one likes.

use roce_test_macros::tier1;
use std::path::Path;

use clap::Parser;
use roce_tests::soak::{self, Options};

#[tier1]
fn while_peers_are_killed_every_request_completes_every_byte_is_right_and_nothing_leaks() {
    // 20 seconds, in which each peer is killed about five times.
    let options = Options::parse_from(["soak", "--minutes", "0.333", "--kill-every", "4"]);
    let program = Path::new(env!("CARGO_BIN_EXE_soak"));
    let mut lines = Vec::new();
    let summary = soak::run(&options, program, &mut |line| lines.push(line.to_owned())).unwrap();
    assert!(
        summary.violations.is_empty(),
        "{}\n{summary}\nto repeat: cargo xtask soak --minutes 0.333 --kill-every 4 --seed {}",
        lines.join("\n"),
        summary.seed
    );
}
