//! Builds what is measured, gets what it is measured beside, and runs the bench.
//!
//! The measuring is the program `bench` of the crate `roce-bench`; `bench/README.md` says how.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::Command;

use crate::{Result, machine, workspace};

/// Runs the bench; arguments are its own, but for `--no-install`.
///
/// # Errors
/// When something does not compile, or the bench fails. A peer that is not installed, and cannot
/// be, is no error: the table names it.
pub(crate) fn run(arguments: &[OsString]) -> Result<()> {
    let (ours, theirs): (Vec<_>, Vec<_>) =
        arguments.iter().partition(|argument| *argument == NO_INSTALL);
    if ours.is_empty()
        && let Err(why) = machine::get_bench_peers()
    {
        println!("   peers will be missing: {why}");
    }
    build()?;
    let folder = workspace::target().join("release");
    build_mpi(&folder)?;
    let mut bench = Command::new(folder.join("bench"));
    bench.current_dir(workspace::root()).args(&theirs);
    bench.arg("--command").arg(in_words(&theirs));
    let status = bench.status()?;
    if status.success() { Ok(()) } else { Err(format!("the bench ended with {status}").into()) }
}

fn build() -> Result<()> {
    let mut cargo = workspace::cargo();
    cargo.args(["build", "--quiet", "--release", "--bins"]);
    cargo.args(["--package", "roce", "--package", "roce-bench"]);
    if cargo.status()?.success() { Ok(()) } else { Err("the bench does not compile".into()) }
}

/// A peer's program, where there is an MPI to build it with. Without it the table has no such
/// peer, and says so.
fn build_mpi(folder: &Path) -> Result<()> {
    if !machine::is_installed("mpicc") {
        return Ok(());
    }
    let mut compiler = Command::new("mpicc");
    compiler.current_dir(workspace::root()).args(["-O2", "-o"]).arg(folder.join("allreduce_mpi"));
    if !compiler.arg("bench/mpi/allreduce.c").status()?.success() {
        println!("   Open MPI will be missing: bench/mpi/allreduce.c does not compile");
    }
    Ok(())
}

/// What to type to run this again.
fn in_words(arguments: &[&OsString]) -> OsString {
    let words = arguments.iter().map(|argument| argument.as_os_str());
    let mut text = OsString::from("cargo xtask bench");
    for word in words {
        text.push(OsStr::new(" "));
        text.push(word);
    }
    text
}

const NO_INSTALL: &str = "--no-install";

#[cfg(test)]
mod tests {
    use super::in_words;

    #[test]
    fn the_command_is_kept_as_it_was_typed() {
        let words = ["--quick".into(), "--only".into(), "write".into()];
        assert_eq!(in_words(&words.each_ref()), "cargo xtask bench --quick --only write");
        assert_eq!(in_words(&[]), "cargo xtask bench");
    }
}
