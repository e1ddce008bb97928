//! The Debian package.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::elf::Needs;
use super::installation::{FOLDERS, Installation};
use super::tool::run_tool;
use crate::{Result, workspace};

/// Packs an installation into `folder` and returns the package.
///
/// The package has no scripts and gives no file capabilities: the loader ignores `LD_LIBRARY_PATH` for
/// programs whose file has some, and `roce run` passes on what its caller may do.
pub(super) fn build(installation: &Installation, needs: &Needs, folder: &Path) -> Result<PathBuf> {
    let version = env!("CARGO_PKG_VERSION");
    let architecture = installation.architecture().debian();
    let package = folder.join(format!("roce_{version}_{architecture}.deb"));
    let root = workspace::target().join("dist-package");
    workspace::remove_folder(&root)?;
    let usr = root.join("usr");
    fs::create_dir_all(&usr)?;
    for folder in FOLDERS {
        run_tool(Command::new("cp").arg("-a").arg(installation.folder().join(folder)).arg(&usr))?;
    }
    follow_policy(&usr.join("share"))?;
    // What dpkg is told does not depend on the umask of the build.
    run_tool(Command::new("chmod").arg("-R").arg("u=rwX,go=rX").arg(&root))?;
    let control = control(version, architecture, &needs.packages()?, &usr)?;
    fs::create_dir(root.join("DEBIAN"))?;
    run_tool(Command::new("chmod").arg("755").arg(root.join("DEBIAN")))?;
    fs::write(root.join("DEBIAN/control"), control)?;
    run_tool(Command::new("chmod").arg("644").arg(root.join("DEBIAN/control")))?;
    run_tool(
        Command::new("dpkg-deb")
            .args(["--build", "--root-owner-group", "-Zxz"])
            .arg(&root)
            .arg(&package),
    )?;
    fs::remove_dir_all(&root)?;
    Ok(package)
}

/// Moves and compresses the files below `share` as Debian's policy says.
fn follow_policy(share: &Path) -> Result<()> {
    let zsh = share.join("zsh");
    fs::rename(zsh.join("site-functions"), zsh.join("vendor-completions"))?;
    let mut compressed = vec![share.join("doc/roce/third-party-licences")];
    for page in fs::read_dir(share.join("man/man1"))? {
        compressed.push(page?.path());
    }
    run_tool(Command::new("gzip").args(["-9", "-n"]).args(compressed))
}

fn control(
    version: &str,
    architecture: &str,
    dependencies: &str,
    installed: &Path,
) -> Result<String> {
    let kibibytes = kibibytes(installed)?;
    Ok(format!(
        "\
Package: roce
Version: {version}
Architecture: {architecture}
Maintainer: The roce contributors
Installed-Size: {kibibytes}
Depends: {dependencies}
Suggests: ibverbs-utils, perftest
Section: net
Priority: optional
Description: RoCEv2 in user space, for unmodified RDMA programs
 A RoCEv2 endpoint over raw packet sockets, without RDMA hardware or kernel
 modules. `roce run` starts an unmodified program of libibverbs on it, and
 other commands measure, dissect and simulate.
 .
 The libibverbs of the system stays in place: only programs that `roce run`
 starts load the library of this package.
"
    ))
}

/// Returns the size of a folder as dpkg counts it.
fn kibibytes(folder: &Path) -> Result<u64> {
    let mut sum = 1;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        sum += match metadata.is_file() {
            true => metadata.len().div_ceil(1024),
            false if metadata.is_dir() => kibibytes(&entry.path())?,
            false => 1,
        };
    }
    Ok(sum)
}
