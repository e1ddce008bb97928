//! Runs the soak, which lives in the crate `roce-tests`.

use std::ffi::OsString;
use std::process::Command;

use crate::{Result, workspace};

/// Builds the soak as programs are released, and runs it with these arguments.
///
/// # Errors
/// When it does not compile, or something happened that must not.
pub(crate) fn run(arguments: &[OsString]) -> Result<()> {
    let mut cargo = workspace::cargo();
    cargo.args(["build", "--quiet", "--release", "--package", "roce-tests", "--bin", "soak"]);
    if !cargo.status()?.success() {
        return Err("the soak does not compile".into());
    }
    let status = Command::new(workspace::target().join("release/soak")).args(arguments).status()?;
    if status.success() { Ok(()) } else { Err("the soak did not pass".into()) }
}
