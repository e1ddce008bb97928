//! `cargo xtask arm64`: tests of the crates with code for arm64, on an emulated processor.

mod cross;
mod guest;

use std::time::Instant;

use clap::Args;

use crate::{Result, host};

/// What is tested: arguments of `cargo test`. The protocol's tests have nothing of the architecture and take
/// many minutes; the rest of `roce-verbs` needs sockets that the emulator of programs does not have.
const TESTS: &[&[&str]] = &[
    &["--package=roce-wire", "--lib", "--tests"],
    &["--package=roce-abi", "--lib"],
    &["--package=roce-transport", "--lib"],
    &[
        "--package=roce-verbs",
        "--lib",
        "region",
        "--",
        // The emulator takes MADV_POPULATE for a hint, and calls it a success without memory.
        "--skip=region::tests::the_whole_address_space_is_a_region",
        "--skip=region::tests::memory_that_is_not_mapped_or_not_writable",
    ],
];

/// What `cargo xtask arm64` takes.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Options {
    /// Boot a machine with Debian's kernel instead, and run there unit tests, what is released for arm64, and
    /// unmodified programs, also against this machine's (as root).
    #[arg(long)]
    guest: bool,
}

/// Builds the tests for arm64, and runs them with QEMU's emulator of programs, or in a guest.
///
/// # Errors
/// If they cannot be built, or a test fails.
pub(crate) fn run(options: Options) -> Result<()> {
    host::install_missing(host::ARM64_TOOLS)?;
    host::install_standard_library(cross::TARGET)?;
    if options.guest {
        return guest::run();
    }
    for arguments in TESTS {
        let started = Instant::now();
        let mut cargo = cross::cargo_test();
        cargo.args(*arguments);
        cargo.env(
            "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER",
            "qemu-aarch64-static -cpu max -L /usr/aarch64-linux-gnu",
        );
        if !cargo.status()?.success() {
            return Err(format!("tests on arm64 failed: {}", arguments.join(" ")).into());
        }
        println!("   ok {} on arm64 ({:.1} s)", arguments[0], started.elapsed().as_secs_f32());
    }
    Ok(())
}
