//! `cargo xtask dist`: an installation, and archives and packages of it.
//!
//! `bin`, `lib` and `share` in `target/dist` can be copied to `/usr/local` as they are. Beside them are what is
//! released, an archive and packages with their checksums and lists of contents, and a `Containerfile` that
//! installs a package. With `--check` all are installed in Debian roots made for that, and unmodified
//! programs run there.
//!
//! The packages are made by the distributions' own tools (`dpkg-deb`, `rpmbuild`, maturin) from the one installation
//! that the archive has too. What was tried in their place: `cargo-deb` 3.8 and `cargo-generate-rpm` 0.21 take the files
//! of one cargo package from a list in its manifest, which would be a second list of the same files, and have 95 and 274
//! crates to build; `cargo-cyclonedx` 0.5 writes one list for each crate of the workspace into the source tree, without
//! the checksums of the components, and with a random serial number, so that two builds differ.

mod architecture;
mod check;
mod deb;
mod elf;
mod installation;
mod licences;
mod numpy;
mod platform;
mod released;
mod rpm;
mod sbom;
mod tarball;
mod tool;
mod trial;
mod wheel;
mod wheel_check;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;

use crate::{Result, host, table, workspace, zig};

use architecture::Architecture;
use check::Artifacts;
use elf::Needs;
use installation::Installation;
use released::Released;
use wheel::Wheel;

/// What `cargo xtask dist` takes.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Options {
    /// Install all that was built in new Debian roots, run programs there and print a table (as root).
    #[arg(long)]
    check: bool,
    /// Lay out what the tests run: sooner built, larger and slower, and for the glibc of this machine.
    #[arg(long)]
    dev: bool,
    /// Build a Python wheel, too, which `--check` installs in fresh virtual environments.
    #[arg(long)]
    wheel: bool,
    /// Release for arm64, too: archive, packages and, with `--wheel`, a wheel.
    #[arg(long, conflicts_with = "dev")]
    arm64: bool,
}

/// The newest glibc that a library of a build for tests may need.
const GLIBC_OF_TESTS: (u32, u32) = (2, 34);

/// Builds, lays out and packs; then checks, if that is asked for.
///
/// # Errors
/// If something does not compile, a tool is missing, or a check fails.
pub(crate) fn run(options: &Options) -> Result<()> {
    host::install_missing(host::PACKAGING_TOOLS)?;
    if options.arm64 {
        host::install_missing(host::ARM64_PACKAGING_TOOLS)?;
    }
    let folder = workspace::target().join("dist");
    let built = if options.dev { build_for_tests()? } else { build(Architecture::X86_64)? };
    workspace::remove_folder(&folder)?;
    let own = Installation::lay_out(Architecture::X86_64, &built, &folder, None)?;
    if options.dev {
        Needs::of_all(Architecture::X86_64, &own.libraries())?.check(GLIBC_OF_TESTS)?;
    }
    let arm64 = if options.arm64 { Some(lay_out_arm64(&own)?) } else { None };
    let own_files = Released::pack(&own, options.dev, &folder)?;
    let mut files = own_files.files();
    let arm64_files = match &arm64 {
        Some(arm64) => Some(Released::pack(arm64, false, &folder)?),
        None => None,
    };
    files.extend(arm64_files.iter().flat_map(Released::files));
    let mut wheels = Vec::new();
    if options.wheel {
        for installation in [&own].into_iter().chain(&arm64) {
            wheels.push(Wheel::build(installation, options.dev, &folder)?);
        }
    }
    files.extend(wheels.iter().map(|wheel| wheel.file.clone()));
    tarball::write_checksums(&folder, &files)?;
    fs::write(folder.join("Containerfile"), include_str!("dist/Containerfile"))?;
    fs::write(folder.join("Containerfile.ci"), include_str!("dist/Containerfile.ci"))?;
    print_sizes(&folder, own.binaries().into_iter().chain(files))?;
    if options.check {
        let artifacts =
            |(installation, released)| Artifacts { installation, released, folder: &folder };
        let mut rows = check::run(
            artifacts((&own, &own_files)),
            arm64.as_ref().zip(arm64_files.as_ref()).map(artifacts),
        )?;
        rows.extend(wheel_check::run(&wheels)?);
        table::print(&rows);
    }
    Ok(())
}

/// Builds and lays out an installation for arm64; `own` is that of this machine.
fn lay_out_arm64(own: &Installation) -> Result<Installation> {
    let folder = workspace::target().join("dist-aarch64");
    let built = build(Architecture::Aarch64)?;
    workspace::remove_folder(&folder)?;
    Installation::lay_out(Architecture::Aarch64, &built, &folder, Some(own))
}

/// Returns an installation of what the tests run, in a folder of its own.
///
/// # Errors
/// If something does not compile, or a tool is missing.
pub(crate) fn installation_for_tests() -> Result<PathBuf> {
    Ok(lay_out_tests()?.folder().to_owned())
}

/// The program and the libraries of an installation.
#[derive(Debug)]
pub(crate) struct Installed {
    pub(crate) program: PathBuf,
    pub(crate) libraries: Vec<PathBuf>,
}

/// Returns installations of what the tests run on this machine, and of what is released for arm64.
///
/// # Errors
/// If something does not compile, or a tool is missing.
pub(crate) fn installations_with_arm64() -> Result<[Installed; 2]> {
    host::install_missing(host::ARM64_PACKAGING_TOOLS)?;
    let own = lay_out_tests()?;
    let other = lay_out_arm64(&own)?;
    Ok([own, other].map(|installation| Installed {
        program: installation.program(),
        libraries: installation.libraries(),
    }))
}

/// Lays out what the tests run, in a folder of its own.
fn lay_out_tests() -> Result<Installation> {
    host::install_missing(host::PACKAGING_TOOLS)?;
    let folder = workspace::target().join("dist-tests");
    let built = build_for_tests()?;
    workspace::remove_folder(&folder)?;
    Installation::lay_out(Architecture::X86_64, &built, &folder, None)
}

/// Builds what is released, for its glibc, and returns the folder of the result.
fn build(architecture: Architecture) -> Result<PathBuf> {
    let target = architecture.target();
    let mut cargo = zig::Zig::find_or_install()?.build(target)?;
    cargo.args(["--quiet", "--release"]);
    cargo.args(licences::PACKAGES.iter().flat_map(|package| ["--package", package]));
    compile(&mut cargo)?;
    Ok(workspace::target().join(target).join("release"))
}

/// Builds what the tests run and returns the folder of the result.
fn build_for_tests() -> Result<PathBuf> {
    compile(&mut workspace::build_for_tests())?;
    Ok(workspace::target().join("debug"))
}

fn compile(cargo: &mut Command) -> Result<()> {
    let is_done = cargo.status()?.success();
    if is_done { Ok(()) } else { Err("the installation does not compile".into()) }
}

fn print_sizes(folder: &Path, files: impl Iterator<Item = PathBuf>) -> Result<()> {
    println!("{}:", folder.display());
    for file in files {
        let name = file.strip_prefix(folder)?;
        println!("{:>12}  {}", with_separators(fs::metadata(&file)?.len()), name.display());
    }
    Ok(())
}

/// Returns a number with its thousands apart.
fn with_separators(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::with_separators;

    #[test]
    fn sizes_have_their_thousands_apart() {
        let shown = [0, 999, 1000, 12_345_678].map(with_separators);
        assert_eq!(shown, ["0", "999", "1 000", "12 345 678"]);
    }
}
