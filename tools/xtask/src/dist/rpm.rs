//! The package for systems with rpm.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::elf::Needs;
use super::installation::{FOLDERS, Installation};
use super::tool::run_tool;
use crate::{Result, workspace};

/// Packs an installation into `folder` and returns the package.
///
/// As the Debian package it has no scripts. What it needs and provides is said here and not found by rpm,
/// which would say that it provides the libibverbs of the system.
pub(super) fn build(installation: &Installation, needs: &Needs, folder: &Path) -> Result<PathBuf> {
    let top = workspace::target().join("dist-rpm");
    workspace::remove_folder(&top)?;
    let usr = top.join("BUILDROOT/usr");
    fs::create_dir_all(&usr)?;
    for part in FOLDERS {
        run_tool(Command::new("cp").arg("-a").arg(installation.folder().join(part)).arg(&usr))?;
    }
    let mut pages = Vec::new();
    for page in fs::read_dir(usr.join("share/man/man1"))? {
        pages.push(page?.path());
    }
    run_tool(Command::new("gzip").args(["-9", "-n"]).args(pages))?;
    run_tool(Command::new("chmod").arg("-R").arg("u=rwX,go=rX").arg(&usr))?;

    let version = env!("CARGO_PKG_VERSION");
    let architecture = installation.architecture().machine();
    let specification = top.join("roce.spec");
    fs::write(&specification, specification_of(version, needs)?)?;
    let define = |name: &str, value: &Path| format!("--define={name} {}", value.display());
    run_tool(
        Command::new("rpmbuild")
            .args(["-bb", "--quiet", "--target"])
            .arg(format!("{}-linux", architecture))
            .arg("--buildroot")
            .arg(top.join("BUILDROOT"))
            .arg(define("_topdir", &top))
            .arg(define("_rpmdir", &top.join("RPMS")))
            // The time of the build and its host are not part of the package.
            .args([
                "--define=_buildhost localhost",
                "--define=use_source_date_epoch_as_buildtime 1",
            ])
            .args(["--define=clamp_mtime_to_source_date_epoch 1"])
            .arg("--define=source_date_epoch_from_changelog 0")
            // All systems of the last ten years unpack this.
            .arg("--define=_binary_payload w6.xzdio")
            .env("SOURCE_DATE_EPOCH", super::tarball::time_of_release()?.to_string())
            .arg(&specification),
    )?;
    let name = format!("roce-{version}-1.{}.rpm", architecture);
    let built = top.join("RPMS").join(architecture).join(&name);
    let package = folder.join(name);
    fs::copy(&built, &package).map_err(|error| format!("{}: {error}", built.display()))?;
    fs::remove_dir_all(&top)?;
    Ok(package)
}

/// Returns the file that tells rpmbuild what the package is. Its files are in place: nothing is built, stripped
/// or compressed, and there is no package of debugging data.
fn specification_of(version: &str, needs: &Needs) -> Result<String> {
    let mut text = format!(
        "\
%global debug_package %{{nil}}
%global __os_install_post %{{nil}}
%global _build_id_links none
Name: roce
Version: {version}
Release: 1
Summary: RoCEv2 in user space, for unmodified RDMA programs
License: MIT OR Apache-2.0
AutoReqProv: no
"
    );
    for capability in needs.capabilities() {
        writeln!(text, "Requires: {capability}")?;
    }
    write!(
        text,
        "
%description
A RoCEv2 endpoint over raw packet sockets, without RDMA hardware or kernel
modules. `roce run` starts an unmodified program of libibverbs on it, and
other commands measure, dissect and simulate.

The libibverbs of the system stays in place: only programs that `roce run`
starts load the library of this package.

%files
%defattr(-,root,root)
/usr/bin/roce
/usr/lib/roce
%doc /usr/share/doc/roce
/usr/share/man/man1/*
/usr/share/bash-completion/completions/*
/usr/share/fish/vendor_completions.d/*
/usr/share/zsh/site-functions/*
"
    )?;
    Ok(text)
}
