//! `cargo xtask dist`: an installation, and a Debian package of it.
//!
//! `target/dist` can be copied to `/usr/local` as it is; beside `bin`, `lib` and `share` it has the
//! package and a `Containerfile` that installs it. With `--check` the package is installed in a
//! Debian 12 root made for that, and unmodified programs run there.

mod check;
mod deb;
mod elf;
mod installation;
mod licences;
mod wheel;
mod wheel_check;

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::{Result, host, workspace};

use elf::Needs;
use installation::Installation;

/// What `cargo xtask dist` takes.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Options {
    /// Install the package in a new Debian 12 root and run programs there (as root).
    #[arg(long)]
    check: bool,
    /// Lay out what the tests run: sooner built, larger and slower.
    #[arg(long)]
    dev: bool,
    /// Build a Python wheel, too; with `--check` install it in fresh virtual environments instead.
    #[arg(long)]
    wheel: bool,
}

/// Builds, lays out and packs; then checks, if that is asked for.
///
/// # Errors
/// If something does not compile, a tool is missing, or a check fails.
pub(crate) fn run(options: &Options) -> Result<()> {
    host::install_missing(host::PACKAGING_TOOLS)?;
    let built = build(options.dev)?;
    let folder = workspace::target().join("dist");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    let installation = Installation::lay_out(&built, &folder)?;
    let needs = Needs::of_all(&installation.binaries())?;
    Needs::of_all(&installation.libraries())?.check()?;
    let package = deb::build(&installation, &needs)?;
    fs::write(folder.join("Containerfile"), include_str!("dist/Containerfile"))?;
    fs::write(folder.join("Containerfile.ci"), include_str!("dist/Containerfile.ci"))?;
    print_sizes(&folder, &installation, &package)?;
    if options.wheel {
        let wheel = wheel::build(&installation, &needs, &folder, options.dev)?;
        print_size(&folder, &wheel)?;
        return if options.check { wheel_check::run(&wheel) } else { Ok(()) };
    }
    if options.check { check::run(&package) } else { Ok(()) }
}

/// Returns an installation of what the tests run, in a folder of its own.
///
/// # Errors
/// If something does not compile, or a tool is missing.
pub(crate) fn installation_for_tests() -> Result<PathBuf> {
    host::install_missing(host::PACKAGING_TOOLS)?;
    let folder = workspace::target().join("dist-tests");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    Installation::lay_out(&build(true)?, &folder)?;
    Ok(folder)
}

/// Builds the packages and returns the folder of the result.
fn build(dev: bool) -> Result<PathBuf> {
    let mut cargo = match dev {
        true => workspace::build_for_tests(),
        false => {
            let mut cargo = workspace::cargo();
            cargo.args(["build", "--quiet", "--release"]);
            cargo.args(licences::PACKAGES.iter().flat_map(|package| ["--package", package]));
            cargo
        }
    };
    if !cargo.status()?.success() {
        return Err("the installation does not compile".into());
    }
    Ok(workspace::target().join(if dev { "debug" } else { "release" }))
}

fn print_sizes(folder: &Path, installation: &Installation, package: &Path) -> Result<()> {
    println!("{}:", folder.display());
    for file in installation.binaries().into_iter().chain([package.to_owned()]) {
        print_size(folder, &file)?;
    }
    Ok(())
}

fn print_size(folder: &Path, file: &Path) -> Result<()> {
    let name = file.strip_prefix(folder)?;
    println!("{:>12}  {}", with_separators(fs::metadata(file)?.len()), name.display());
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
