//! Runs the interop matrix, which lives in the crate `roce-interop`.

use std::ffi::OsString;
use std::process::Command;

use roce_guest::Architecture;

use crate::stages::{Log, StageResult};
use crate::{Result, host, workspace};

/// Prints the matrix.
///
/// # Errors
/// When a case is red, or the machine cannot have a guest.
pub(crate) fn run(architecture: &str, arguments: &[OsString]) -> Result<()> {
    let architecture = Architecture::of_debian(architecture)
        .ok_or_else(|| format!("there is no guest of {architecture:?}"))?;
    host::install_guest_tools(architecture)?;
    host::check_tap_access()?;
    if !workspace::build_for_tests().status()?.success() {
        return Err("the matrix does not compile".into());
    }
    let mut matrix = matrix();
    matrix.args(["--architecture", architecture.debian()]).args(arguments);
    let status = matrix.status()?;
    if status.success() { Ok(()) } else { Err("not every case passed".into()) }
}

/// Compares sequences of calls on rxe and on ours.
///
/// # Errors
/// When a difference has no row, or the machine cannot have a guest.
pub(crate) fn sequences(arguments: &[OsString]) -> Result<()> {
    host::install_guest_tools(Architecture::X86_64)?;
    host::check_tap_access()?;
    if !workspace::build_for_tests().status()?.success() {
        return Err("the programs do not compile".into());
    }
    let mut command = Command::new(workspace::target().join("debug/call_sequences"));
    command.arg("--target").arg(workspace::target()).args(arguments);
    let status = command.status()?;
    if status.success() { Ok(()) } else { Err("not every difference is allowed".into()) }
}

/// The matrix as a stage; the log holds the table.
///
/// # Errors
/// As [`run`].
pub(crate) fn stage(log: &Log) -> Result<StageResult> {
    log.run(&mut workspace::build_for_tests())?;
    log.run(&mut matrix())?;
    let text = std::fs::read_to_string(log.path())?;
    let summary = text.lines().rev().find(|line| line.contains("cases")).unwrap_or_default();
    Ok(StageResult::Passed(summary.to_owned()))
}

pub(crate) fn matrix() -> Command {
    let mut matrix = Command::new(workspace::target().join("debug/interop"));
    matrix.arg("--target").arg(workspace::target());
    matrix
}
