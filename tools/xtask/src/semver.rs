//! `cargo xtask semver`: the public items of the crates that are published, beside those of an earlier revision.
//!
//! cargo-semver-checks compares them, and says which change of the version they need. Its baseline is built from a
//! revision of this repository, since there is one before anything is published.

use std::path::PathBuf;
use std::process::Command;

use clap::Args;

use crate::package::Published;
use crate::{Result, workspace};

/// The version that reads what rustdoc of the oldest supported Rust writes; each reads that of a few releases.
const VERSION: &str = "0.51.0";

/// What `cargo xtask semver` takes.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Revision to compare with: a tag, a branch or a commit. By default the newest tag of a release, or HEAD while
    /// there is none, so that only changes that are not committed are looked at.
    baseline: Option<String>,
    /// Only this crate; may be given several times.
    #[arg(long = "package", short)]
    packages: Vec<String>,
}

/// Compares each crate.
///
/// # Errors
/// If a crate changes in a way that its version does not admit, or something does not compile.
pub(crate) fn run(options: &Options) -> Result<()> {
    let metadata = workspace::metadata()?;
    let crates = chosen(Published::libraries(&metadata), &options.packages)?;
    let program = find_or_install()?;
    let baseline = match &options.baseline {
        Some(revision) => revision.clone(),
        None => default_baseline()?,
    };
    let commit = git(&["rev-parse", "--verify", &format!("{baseline}^{{commit}}")])?;
    println!("   baseline: {baseline} ({commit})");
    let mut failures = Vec::new();
    for Published { name, manifest, .. } in crates {
        if git(&["cat-file", "-e", &format!("{commit}:{manifest}")]).is_err() {
            println!("   ok {name} is new since {baseline}");
            continue;
        }
        let mut check = Command::new(&program);
        check.args(["semver-checks", "check-release", "--package", name]);
        check.args(["--baseline-rev", &commit]).current_dir(workspace::root());
        match check.status()?.success() {
            true => println!("   ok {name}"),
            false => failures.push(name),
        }
    }
    match &failures[..] {
        [] => Ok(()),
        names => Err(format!("not as their versions say: {}", names.join(", ")).into()),
    }
}

/// Returns the crates of these names, or all if there are none.
///
/// # Errors
/// If there is no crate of a name.
fn chosen<'a>(all: Vec<Published<'a>>, names: &[String]) -> Result<Vec<Published<'a>>> {
    if let Some(unknown) = names.iter().find(|name| all.iter().all(|one| one.name != **name)) {
        let all: Vec<_> = all.iter().map(|one| one.name).collect();
        return Err(format!("{unknown} is no published library: {}", all.join(", ")).into());
    }
    let is_chosen = |one: &Published<'_>| names.is_empty() || names.iter().any(|it| it == one.name);
    Ok(all.into_iter().filter(is_chosen).collect())
}

/// Returns the newest tag of a release that HEAD descends from, or HEAD.
fn default_baseline() -> Result<String> {
    let tags = git(&["tag", "--list", "v*", "--merged", "HEAD", "--sort=-version:refname"])?;
    Ok(tags.lines().next().unwrap_or("HEAD").to_owned())
}

/// Returns what git prints.
///
/// # Errors
/// If it fails, with what it says.
fn git(arguments: &[&str]) -> Result<String> {
    let output = Command::new("git").args(arguments).current_dir(workspace::root()).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().into());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Returns the program; installs it below the folder of builds where there is none of [`VERSION`].
fn find_or_install() -> Result<PathBuf> {
    let is_it = |program: &PathBuf| {
        let output = Command::new(program).args(["semver-checks", "--version"]).output();
        output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains(VERSION))
    };
    let installed = PathBuf::from("cargo-semver-checks");
    if is_it(&installed) {
        return Ok(installed);
    }
    let folder = workspace::target().join("tools");
    let ours = folder.join("bin/cargo-semver-checks");
    if !is_it(&ours) {
        println!("   installing: cargo-semver-checks {VERSION} below {}", folder.display());
        let mut cargo = workspace::cargo();
        cargo.args(["install", "cargo-semver-checks", "--version", VERSION, "--locked", "--quiet"]);
        if !cargo.arg("--root").arg(&folder).status()?.success() {
            return Err("cargo did not install cargo-semver-checks".into());
        }
    }
    Ok(ours)
}
