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
    let mut matrix = matrix();
    matrix.args(["--architecture", architecture.debian()]).args(arguments);
    run_program(architecture, matrix, "not every case passed")
}

/// Compares sequences of calls on rxe and on ours.
///
/// # Errors
/// When a difference or a function that is not called has no row, or the machine cannot have a guest.
pub(crate) fn sequences(arguments: &[OsString]) -> Result<()> {
    let mut sequences = program("call_sequences");
    sequences.args(arguments);
    run_program(Architecture::X86_64, sequences, "not every difference is allowed")
}

/// Builds the workspace and runs one of its programs, which boots guests.
fn run_program(architecture: Architecture, mut program: Command, otherwise: &str) -> Result<()> {
    host::install_guest_tools(architecture)?;
    host::check_tap_access()?;
    if !workspace::build_for_tests().status()?.success() {
        return Err("the programs do not compile".into());
    }
    if program.status()?.success() { Ok(()) } else { Err(otherwise.into()) }
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

/// Sequences of fixed seeds as a stage; the log holds their differences.
///
/// # Errors
/// As [`sequences`].
pub(crate) fn sequences_stage(log: &Log) -> Result<StageResult> {
    log.run(&mut workspace::build_for_tests())?;
    let ran = log.run(program("call_sequences").args(["--first", "0", "--count", SEQUENCES]));
    let text = std::fs::read_to_string(log.path())?;
    if let Err(error) = ran {
        let (found, _) = text.split_once(UNSTEADY).unwrap_or((&text, ""));
        for seed in seeds(found) {
            log.add_repeat(format!("cargo xtask sequences --show {seed}"));
        }
        return Err(error);
    }
    let summary = text.lines().rev().find(|line| line.contains(" compared, ")).unwrap_or_default();
    let compared = summary.split(' ').next().and_then(|count| count.parse().ok()).unwrap_or(0);
    if compared < MIN_COMPARED {
        return Err(format!("too few sequences were compared: {summary}").into());
    }
    Ok(StageResult::Passed(summary.to_owned()))
}

/// If fewer are compared, rxe or its guest does not run.
const MIN_COMPARED: u32 = 60;

/// How many sequences the stage executes.
const SEQUENCES: &str = "80";

/// The line in front of differences that were not there each time, which fail nothing.
const UNSTEADY: &str = "\nnot each time:\n";

/// Returns the seeds of the examples that the program has printed.
fn seeds(text: &str) -> Vec<u64> {
    let examples = text.lines().filter_map(|line| line.trim().strip_prefix("seed "));
    examples.filter_map(|it| it.split(':').next()?.parse().ok()).collect()
}

pub(crate) fn matrix() -> Command {
    program("interop")
}

/// Returns the command of a program of `roce-interop`.
fn program(name: &str) -> Command {
    let mut program = Command::new(workspace::target().join("debug").join(name));
    program.arg("--target").arg(workspace::target());
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_difference_is_repeated_by_the_seed_of_its_example() {
        let text = "    2 ibv_dereg_mr ret: EINVAL | EBUSY\n      seed 49: 29 ibv_dereg_mr mr=m0\n\
                    allowed 7 times: seed\n      seed x: no number\n";
        assert_eq!(seeds(text), [49]);
    }
}
