//! Runs unmodified RDMA programs on our library, with the program `dropin` of `roce-interop`.

use std::ffi::OsString;
use std::process::Command;

use crate::stages::{Log, StageResult};
use crate::{Result, host, workspace};

/// Prints the table.
///
/// # Errors
/// When a line is red, or the machine cannot have the programs or a guest.
pub(crate) fn run(arguments: &[OsString]) -> Result<()> {
    host::install_dropin_programs()?;
    host::install_guest_tools()?;
    host::check_tap_access()?;
    if !build().status()?.success() {
        return Err("the programs do not compile".into());
    }
    let status = table().args(arguments).status()?;
    if status.success() { Ok(()) } else { Err("not every line passed".into()) }
}

/// A part of the quick table as a stage; the log holds it.
///
/// # Errors
/// As [`run`].
pub(crate) fn stage(log: &Log, part: &[&str]) -> Result<StageResult> {
    host::install_dropin_programs()?;
    log.run(&mut build())?;
    log.run(table().arg("--quick").args(part))?;
    let text = std::fs::read_to_string(log.path())?;
    let summary = text.lines().rev().find(|line| line.contains("cases")).unwrap_or_default();
    Ok(StageResult::Passed(summary.to_owned()))
}

/// Builds the table, the command and the libraries.
fn build() -> Command {
    let mut cargo = workspace::cargo();
    // The tests' profile: most was built in it already.
    cargo.args(["build", "--quiet", "--profile", "test"]);
    cargo.args(["--package", "roce-interop", "--package", "roce"]);
    cargo.args(["--package", "roce-ibverbs", "--package", "roce-preload"]);
    cargo
}

fn table() -> Command {
    let mut table = Command::new(workspace::target().join("debug/dropin"));
    table.arg("--target").arg(workspace::target());
    table
}
