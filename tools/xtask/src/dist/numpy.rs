//! NumPy, which the examples of `docs/python.md` use, for roots without a way to the index.

use std::path::Path;
use std::process::Command;

use super::architecture::Architecture;
use super::tool::run_tool;
use super::wheel;
use crate::Result;

/// The platforms of NumPy's wheels. pip takes the tags of another machine as they are, and knows no older ones.
const GLIBCS: [&str; 3] = ["2_28", "2_27", "2_17"];

/// Fetches the newest NumPy for a version of Python into a folder.
///
/// # Errors
/// If pip finds none.
pub(super) fn fetch(python: &str, architecture: Architecture, folder: &Path) -> Result<()> {
    let mut pip = Command::new(wheel::tools()?.join("pip"));
    pip.args(["download", "numpy", "--quiet", "--disable-pip-version-check", "--no-deps"]);
    pip.args(["--only-binary=:all:", "--python-version", python, "--dest"]).arg(folder);
    for glibc in GLIBCS {
        pip.arg(format!("--platform=manylinux_{glibc}_{}", architecture.machine()));
    }
    run_tool(&mut pip)
}
