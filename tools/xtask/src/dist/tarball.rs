//! Archives of an installation, and the checksums of all that is released.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::installation::Installation;
use super::tool::run_tool;
use crate::{Result, workspace};

/// Packs an installation into `folder` and returns the archive, with one folder that can be copied anywhere.
///
/// The same files give the same archive: their times are that of the last commit.
pub(super) fn build(installation: &Installation, folder: &Path) -> Result<PathBuf> {
    let name =
        format!("roce-{}-{}", env!("CARGO_PKG_VERSION"), installation.architecture().target());
    let top = workspace::target().join("dist-tarball");
    workspace::remove_folder(&top)?;
    let root = top.join(&name);
    fs::create_dir_all(&root)?;
    for part in super::installation::FOLDERS {
        run_tool(Command::new("cp").arg("-a").arg(installation.folder().join(part)).arg(&root))?;
    }
    for file in ["README.md", "LICENSE-MIT", "LICENSE-APACHE", "CHANGELOG.md"] {
        fs::copy(workspace::root().join(file), root.join(file))?;
    }
    let archive = folder.join(format!("{name}.tar.gz"));
    run_tool(
        Command::new("tar")
            .args(["--create", "--sort=name", "--owner=0", "--group=0", "--numeric-owner"])
            .args(["--mode=u=rwX,go=rX", "--format=gnu", "--use-compress-program=gzip -9n"])
            .arg(format!("--mtime=@{}", time_of_release()?))
            .arg("--file")
            .arg(&archive)
            .arg("--directory")
            .arg(&top)
            .arg(&name),
    )?;
    fs::remove_dir_all(&top)?;
    Ok(archive)
}

/// Returns the time of what is released, in seconds of the Unix clock: `SOURCE_DATE_EPOCH`, or that of the last
/// commit.
///
/// # Errors
/// If there is neither.
pub(super) fn time_of_release() -> Result<u64> {
    if let Ok(given) = std::env::var("SOURCE_DATE_EPOCH") {
        return Ok(given.parse()?);
    }
    let mut git = Command::new("git");
    git.args(["log", "-1", "--format=%ct"]).current_dir(workspace::root());
    let output = git.output()?;
    if !output.status.success() {
        return Err("outside of a git repository, set SOURCE_DATE_EPOCH".into());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().parse()?)
}

/// Writes `SHA256SUMS`, which `sha256sum --check` reads, for files of one folder.
pub(super) fn write_checksums(folder: &Path, files: &[PathBuf]) -> Result<()> {
    let names: Result<Vec<&Path>> =
        files.iter().map(|file| Ok(file.strip_prefix(folder)?)).collect();
    let output = Command::new("sha256sum").args(names?).current_dir(folder).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    Ok(fs::write(folder.join("SHA256SUMS"), output.stdout)?)
}
