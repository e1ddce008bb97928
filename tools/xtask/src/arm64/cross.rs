//! Tests that are built for arm64 on this machine.

use std::process::Command;

use crate::workspace;

/// Rust's name of arm64 with glibc.
pub(super) const TARGET: &str = "aarch64-unknown-linux-gnu";

/// Returns `cargo test` for arm64.
pub(super) fn cargo_test() -> Command {
    let mut cargo = workspace::cargo();
    cargo.arg("test").arg(format!("--target={TARGET}"));
    cargo.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "aarch64-linux-gnu-gcc");
    cargo
}
