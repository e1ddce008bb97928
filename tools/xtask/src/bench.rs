//! Builds what is measured, gets what it is measured beside, and runs the bench.
//!
//! The measuring is the program `bench` of the crate `roce-bench`; `bench/README.md` says how.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::Command;

use crate::{Result, host, workspace};

/// Runs the bench; arguments are its own, but for `--no-install`.
///
/// # Errors
/// When something does not compile, or the bench fails. A peer that is not installed, and cannot
/// be, is no error: the table names it.
pub(crate) fn run(arguments: &[OsString]) -> Result<()> {
    let (ours, theirs): (Vec<_>, Vec<_>) =
        arguments.iter().partition(|argument| *argument == NO_INSTALL);
    if ours.is_empty()
        && measures_something(arguments)
        && let Err(why) =
            host::install_missing(&[host::BENCH_PROGRAMS, host::BENCH_LIBRARIES].concat())
    {
        println!("   peers will be missing: {why}");
    }
    build()?;
    let folder = workspace::target().join("release");
    build_mpi(&folder)?;
    build_gloo(&folder)?;
    let mut bench = Command::new(folder.join("bench"));
    bench.current_dir(workspace::root()).args(&theirs);
    bench.arg("--command").arg(command_line(&theirs));
    let status = bench.status()?;
    if status.success() { Ok(()) } else { Err(format!("the bench ended with {status}").into()) }
}

fn build() -> Result<()> {
    let mut cargo = workspace::cargo();
    // The libraries are for perftest's programs.
    cargo.args(["build", "--quiet", "--release"]);
    cargo.args(["--package", "roce", "--package", "roce-bench"]);
    cargo.args(["--package", "roce-ibverbs", "--package", "roce-preload"]);
    if cargo.status()?.success() { Ok(()) } else { Err("the bench does not compile".into()) }
}

/// A peer's program, where there is an MPI to build it with. Without it the table has no such
/// peer, and says so.
fn build_mpi(folder: &Path) -> Result<()> {
    if !host::is_installed("mpicc") {
        return Ok(());
    }
    let mut compiler = Command::new("mpicc");
    compiler.current_dir(workspace::root()).args(["-O2", "-o"]).arg(folder.join("allreduce_mpi"));
    if !compiler.arg("bench/mpi/allreduce.c").status()?.success() {
        println!("   Open MPI will be missing: bench/mpi/allreduce.c does not compile");
    }
    Ok(())
}

/// As [`build_mpi`], with the library Gloo.
fn build_gloo(folder: &Path) -> Result<()> {
    if !Path::new("/usr/include/gloo/config.h").exists() || !host::is_installed("c++") {
        return Ok(());
    }
    let mut compiler = Command::new("c++");
    compiler.current_dir(workspace::root()).args(["-O2", "-o"]).arg(folder.join("allreduce_gloo"));
    compiler.args(["bench/gloo/allreduce.cc", "-lgloo", "-libverbs"]);
    if !compiler.status()?.success() {
        println!("   Gloo will be missing: bench/gloo/allreduce.cc does not compile");
    }
    Ok(())
}

/// Returns true if something is to be measured: help and names need no other program.
fn measures_something(arguments: &[OsString]) -> bool {
    const WORDS: [&str; 4] = ["--help", "-h", "--list", "--render"];
    !arguments.iter().any(|argument| WORDS.iter().any(|word| argument == word))
}

/// What to type to run this again.
fn command_line(arguments: &[&OsString]) -> OsString {
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
    use super::{command_line, measures_something};

    #[test]
    fn help_installs_nothing() {
        assert!(measures_something(&["--quick".into()]) && measures_something(&[]));
        assert!(!measures_something(&["--only".into(), "write".into(), "--list".into()]));
        assert!(!measures_something(&["--help".into()]));
    }

    #[test]
    fn the_command_is_kept_as_it_was_typed() {
        let words = ["--quick".into(), "--only".into(), "write".into()];
        assert_eq!(command_line(&words.each_ref()), "cargo xtask bench --quick --only write");
        assert_eq!(command_line(&[]), "cargo xtask bench");
    }
}
