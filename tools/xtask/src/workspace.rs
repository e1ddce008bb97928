//! Where things are, and cargo.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::Result;

/// This program, also after cargo has built it anew, with the features of other programs, and put
/// another file in its place.
pub(crate) const OURSELVES: &str = "/proc/self/exe";

/// The workspace's top folder.
pub(crate) fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("this crate is two folders below the top")
}

/// Where cargo builds and where everything fetched or logged goes.
pub(crate) fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |dir| root().join(dir))
}

/// The cargo that runs us, in the workspace's top folder.
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root());
    // Ours are for this tool, not for what it builds.
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            cargo.env_remove(&*name);
        }
    }
    cargo
}

/// Builds the programs and libraries in the profile of the tests, with the features of
/// `cargo test --workspace`: what that has built is not built again. Cargo takes the features that only
/// tests need where examples are built.
pub(crate) fn build_for_tests() -> Command {
    let mut cargo = cargo();
    cargo.args(["build", "--quiet", "--profile", "test", "--workspace"]);
    cargo.args(["--lib", "--bins", "--examples"]);
    cargo
}

/// Removes a folder, if it is there.
///
/// # Errors
/// When something in it cannot be removed.
pub(crate) fn remove_folder(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    Ok(())
}

/// Returns the Rust files below a folder, sorted.
///
/// # Errors
/// When a folder cannot be read.
pub(crate) fn rust_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() && !path.ends_with("target") {
            files.append(&mut rust_files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// What `cargo metadata` says of the workspace's own packages.
pub(crate) fn metadata() -> Result<Value> {
    let output = cargo().args(["metadata", "--format-version=1", "--no-deps"]).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}
