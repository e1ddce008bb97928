//! Runs the interop matrix, which lives in the crate `roce-tests`.

use std::ffi::OsString;
use std::process::Command;

use crate::stages::{Done, Log};
use crate::{Result, machine, workspace};

/// Prints the matrix.
///
/// # Errors
/// When a cell is red, or the machine cannot have a guest.
pub(crate) fn run(arguments: &[OsString]) -> Result<()> {
    machine::get_guest_tools()?;
    let status = command().args(arguments).status()?;
    if status.success() { Ok(()) } else { Err("not every cell is green".into()) }
}

/// The matrix as a stage; the log holds the table.
///
/// # Errors
/// As [`run`].
pub(crate) fn stage(log: &Log) -> Result<Done> {
    log.run(&mut command())?;
    let text = std::fs::read_to_string(log.path())?;
    let summary = text.lines().rev().find(|line| line.contains("cells")).unwrap_or_default();
    Ok(Done::Passed(summary.to_owned()))
}

fn command() -> Command {
    let mut cargo = workspace::cargo();
    // The tests' profile: they were built in it already.
    cargo.args(["run", "--quiet", "--profile", "test", "--package", "roce-tests"]);
    cargo.args(["--bin", "interop", "--"]).arg("--target").arg(workspace::target());
    cargo
}
