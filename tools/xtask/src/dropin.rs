//! Runs unmodified RDMA programs on our library, with the program `dropin` of `roce-interop`.

mod releases;
mod suite;
mod valkey;

use std::ffi::OsString;
use std::fs;
use std::process::Command;

use roce_guest::Architecture;

use crate::stages::{Log, StageResult};
use crate::{Result, host, workspace};

/// Prints the table; with `releases` that of librdmacm in the releases of Debian, with `suite` those of the
/// programs and the Python suite of the newer ones.
///
/// # Errors
/// When a line is red, or the machine cannot have the programs, a guest or a root.
pub(crate) fn run(releases: bool, suite: bool, arguments: &[OsString]) -> Result<()> {
    if releases {
        return releases::run();
    }
    if suite {
        return suite::run(arguments);
    }
    let has = |option: &str| arguments.iter().any(|argument| argument == option);
    host::install_missing(host::DROPIN_PROGRAMS)?;
    if !has("--no-guest") {
        host::install_guest_tools(Architecture::X86_64)?;
        host::check_tap_access()?;
    }
    if !has("--quick") && !has("--list") {
        install_python_packages()?;
    }
    if !workspace::build_for_tests().status()?.success() {
        return Err("the programs do not compile".into());
    }
    let status = table().args(arguments).status()?;
    if status.success() { Ok(()) } else { Err("not every line passed".into()) }
}

/// Installs packages of the Python package index, and nothing that they depend on, in a folder below
/// that of the build, unless they are there.
fn install_python_packages() -> Result<()> {
    let folder = workspace::target().join("dropin-python");
    let wanted = PYTHON_PACKAGES.join("\n");
    let listed = "packages.txt";
    if fs::read_to_string(folder.join(listed)).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    host::install_missing(host::PYTHON_INSTALLER)?;
    let unfinished = folder.with_extension("part");
    workspace::remove_folder(&unfinished)?;
    let mut pip = Command::new(host::DEBIANS_PYTHON);
    pip.args(["-m", "pip", "install", "--quiet", "--no-deps", "--target"]).arg(&unfinished);
    let status = pip.args(PYTHON_PACKAGES).status()?;
    if !status.success() {
        return Err(format!("pip did not install {}", PYTHON_PACKAGES.join(", ")).into());
    }
    fs::write(unfinished.join(listed), wanted)?;
    workspace::remove_folder(&folder)?;
    Ok(fs::rename(unfinished, folder)?)
}

/// Libraries that move data between hosts; numpy, of which one makes its buffers and another one its
/// results; the event loop of InfiniStore's server.
const PYTHON_PACKAGES: &[&str] = &[
    "nixl-cu12==1.5.1",
    "mooncake-transfer-engine-non-cuda==0.3.13.post1",
    "dlslime==0.1.23",
    "infinistore==0.2.35",
    "uvloop==0.21.0",
    "numpy==2.4.6",
];

/// A part of the quick table as a stage; the log holds it.
///
/// # Errors
/// As [`run`].
pub(crate) fn stage(log: &Log, part: &[&str]) -> Result<StageResult> {
    host::install_missing(host::DROPIN_PROGRAMS)?;
    log.run(&mut workspace::build_for_tests())?;
    log.run(table().arg("--quick").args(part))?;
    let text = std::fs::read_to_string(log.path())?;
    let summary = text.lines().rev().find(|line| line.contains("cases")).unwrap_or_default();
    Ok(StageResult::Passed(summary.to_owned()))
}

fn table() -> Command {
    let mut table = Command::new(workspace::target().join("debug/dropin"));
    table.arg("--target").arg(workspace::target());
    table
}
