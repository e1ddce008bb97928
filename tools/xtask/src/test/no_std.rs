//! The crates that are built without an operating system, as a stage.

use crate::stages::{Log, StageResult};
use crate::{Result, host, workspace};

/// Crates whose feature `std` may be off.
const CRATES: &[&str] = &["roce-wire", "roce-faults", "roce-transport"];
/// A target that has neither a standard library nor atomics of 64 bits: what is checked for it is built for others, too.
const TARGET: &str = "thumbv7em-none-eabihf";

/// Checks each crate alone: what two need together would be there for both.
///
/// # Errors
/// When one needs an operating system.
pub(crate) fn stage(log: &Log) -> Result<StageResult> {
    if let Err(why) = host::install_standard_library(TARGET) {
        return Ok(StageResult::Skipped(why.to_string()));
    }
    for package in CRATES {
        let arguments = ["check", "--no-default-features", "--target", TARGET, "--package"];
        log.run(workspace::cargo().args(arguments).arg(package).env("RUSTFLAGS", "-Dwarnings"))?;
    }
    Ok(StageResult::Passed(CRATES.join(", ")))
}
