//! Unit tests of crates with code for arm64, as programs for the guest.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use roce_guest::Guest;
use serde_json::Value;

use super::super::cross;
use super::report::Report;
use crate::{Result, workspace};

/// Crates, and which of their tests are run: all, or those whose name contains a text. Those of the regions include
/// what the emulator of programs cannot have, since it has no page tables of its own.
const TESTS: [(&str, &str); 4] =
    [("roce-wire", ""), ("roce-abi", ""), ("roce-transport", ""), ("roce-verbs", "region")];

/// Folder of the programs in the guest.
const FOLDER: &str = "/tests";

/// Builds the test programs and returns them without what only debuggers read, in the order of [`TESTS`].
///
/// # Errors
/// If one does not compile.
pub(super) fn build() -> Result<Vec<PathBuf>> {
    let mut cargo = cross::cargo_test();
    cargo.args(["--quiet", "--no-run", "--lib", "--message-format=json-render-diagnostics"]);
    cargo.args(TESTS.iter().flat_map(|(package, _)| ["--package", package]));
    let output = cargo.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err("the tests do not compile for arm64".into());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let messages: Vec<Value> =
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    TESTS.iter().map(|(package, _)| strip(package, built(&messages, package)?)).collect()
}

/// Returns the test program of a package from cargo's messages.
fn built<'a>(messages: &'a [Value], package: &str) -> Result<&'a Path> {
    let target = package.replace('-', "_");
    let is_it = |message: &&Value| {
        message["reason"] == "compiler-artifact"
            && message["profile"]["test"] == true
            && message["target"]["name"] == target
    };
    let program = messages.iter().find(is_it).and_then(|message| message["executable"].as_str());
    Ok(Path::new(program.ok_or_else(|| format!("cargo built no tests of {package}"))?))
}

fn strip(package: &str, program: &Path) -> Result<PathBuf> {
    let folder = workspace::target().join("arm64-tests");
    fs::create_dir_all(&folder)?;
    let stripped = folder.join(package);
    let mut strip = Command::new("aarch64-linux-gnu-strip");
    if strip.arg("-o").arg(&stripped).arg(program).status()?.success() {
        return Ok(stripped);
    }
    Err(format!("{} cannot be stripped", program.display()).into())
}

/// Runs the test programs in the guest.
///
/// # Errors
/// If they cannot be copied there.
pub(super) fn run(guest: &Guest, programs: &[PathBuf], report: &mut Report) -> Result<()> {
    guest.run_ok(&format!("mkdir -p {FOLDER}"))?;
    push_corpora(guest)?;
    for ((package, filter), program) in TESTS.iter().zip(programs) {
        let there = format!("{FOLDER}/{package}");
        guest.push(&there, &fs::read(program)?, 0o755)?;
        report.check(format!("tests of {package} {filter}").trim(), || {
            let output = guest.run_ok(&format!("{there} {filter}"))?;
            line(&output, "test result: ok.")
        });
    }
    report.check("tests of roce-wire processor_crc --nocapture", || {
        let output = guest.run_ok(&format!("{FOLDER}/roce-wire processor_crc --nocapture"))?;
        line(&output, "1 passed")?;
        line(&output, "CRC by crc32x")
    });
    Ok(())
}

fn line(output: &str, text: &str) -> Result<String> {
    let line = output.lines().find(|line| line.contains(text));
    Ok(line.ok_or_else(|| format!("no line has {text:?}:\n{output}"))?.to_owned())
}

/// Copies the corpora of the fuzz targets to where the tests look for them: below the folder of the workspace.
fn push_corpora(guest: &Guest) -> Result<()> {
    let root = workspace::root();
    let archive =
        Command::new("tar").arg("-C").arg(root).args(["-cf", "-", "fuzz/corpus"]).output()?;
    if !archive.status.success() {
        return Err(String::from_utf8_lossy(&archive.stderr).into());
    }
    guest.push("/tmp/corpora.tar", &archive.stdout, 0o644)?;
    // The tests' path leads through a crate's folder.
    let root = root.display();
    let crate_folder = format!("{root}/crates/roce-fuzz-support");
    guest.run_ok(&format!("mkdir -p '{crate_folder}' && tar -C '{root}' -xf /tmp/corpora.tar"))?;
    Ok(())
}
