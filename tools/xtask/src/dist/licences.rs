//! The licences of what an installation contains.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::architecture::Architecture;
use crate::{Result, workspace};

/// Returns the licences of this project's own code.
pub(super) fn own() -> Result<String> {
    let mut text = String::from(
        "roce is licensed under either of the Apache License 2.0 and the MIT licence, at your\n\
         option. The libraries compiled into it are listed, with their licences, in\n\
         third-party-licences.\n",
    );
    for file in ["LICENSE-MIT", "LICENSE-APACHE"] {
        write!(text, "\n{}", fs::read_to_string(workspace::root().join(file))?)?;
    }
    Ok(text)
}

/// Returns a list of the crates that are compiled in, and behind it the texts of their licences, each
/// once.
///
/// # Errors
/// If cargo does not tell them, or a crate declares no licence.
pub(super) fn of_dependencies(architecture: Architecture) -> Result<String> {
    let mut list = String::new();
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for Package { name, version, licence, folder } in compiled_in(architecture)? {
        writeln!(list, "{name} {version}: {licence}")?;
        for licence in texts_in(&folder)? {
            texts.entry(licence).or_default().push(format!("{name} {version}"));
        }
    }
    for (licence, packages) in texts {
        write!(list, "\n==== {}\n\n{licence}\n", packages.join(", "))?;
    }
    Ok(list)
}

/// A package of others that ours are linked with.
#[derive(Debug)]
pub(super) struct Package {
    pub(super) name: String,
    pub(super) version: String,
    /// The expression of its manifest.
    pub(super) licence: String,
    /// The folder of its manifest.
    folder: PathBuf,
}

/// Returns the packages of others that ours are linked with, by name.
///
/// # Errors
/// If cargo does not tell them, or one declares no licence.
pub(super) fn compiled_in(architecture: Architecture) -> Result<Vec<Package>> {
    let metadata = metadata(architecture)?;
    let packages = linked(&metadata)?.into_iter().map(|package| {
        let name = text(&package["name"])?;
        let licence = text(&package["license"]).map_err(|_| format!("{name} has no licence"))?;
        let folder = Path::new(text(&package["manifest_path"])?).parent();
        Ok(Package {
            name: name.to_owned(),
            version: text(&package["version"])?.to_owned(),
            licence: licence.to_owned(),
            folder: folder.ok_or("a manifest has a folder")?.to_owned(),
        })
    });
    packages.collect()
}

fn metadata(architecture: Architecture) -> Result<Value> {
    let mut cargo = workspace::cargo();
    cargo.args(["metadata", "--format-version=1"]);
    cargo.arg(format!("--filter-platform={}", architecture.target()));
    let output = cargo.output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Returns what cargo says of these packages.
fn linked(metadata: &Value) -> Result<Vec<&Value>> {
    let packages: BTreeMap<&str, &Value> = by_id(&metadata["packages"])?;
    let nodes: BTreeMap<&str, &Value> = by_id(&metadata["resolve"]["nodes"])?;
    let is_ours = |package: &Value| package["source"].is_null();
    let mut left: Vec<&str> = packages
        .iter()
        .filter(|(_, package)| PACKAGES.iter().any(|ours| package["name"] == *ours))
        .map(|(id, _)| *id)
        .collect();
    let mut found = BTreeSet::new();
    while let Some(id) = left.pop() {
        let package = packages.get(id).ok_or("a package without metadata")?;
        let runs_in_the_compiler = list(&package["targets"])
            .any(|target| list(&target["kind"]).any(|kind| kind == "proc-macro"));
        if runs_in_the_compiler || !found.insert(id) {
            continue;
        }
        for dependency in list(&nodes.get(id).ok_or("a package without a node")?["deps"]) {
            if list(&dependency["dep_kinds"]).any(|kind| kind["kind"].is_null()) {
                left.push(text(&dependency["pkg"])?);
            }
        }
    }
    let mut others: Vec<&Value> =
        found.iter().map(|id| packages[id]).filter(|package| !is_ours(package)).collect();
    others.sort_by_key(|package| (package["name"].as_str(), package["version"].as_str()));
    Ok(others)
}

fn by_id(values: &Value) -> Result<BTreeMap<&str, &Value>> {
    list(values).map(|value| Ok((text(&value["id"])?, value))).collect()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> Result<&str> {
    value.as_str().ok_or_else(|| "cargo metadata has a text less than expected".into())
}

/// Returns the licences in a crate's folder.
fn texts_in(folder: &Path) -> Result<Vec<String>> {
    let mut texts = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().to_uppercase();
        let starts = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];
        if starts.iter().any(|start| name.starts_with(start)) && entry.file_type()?.is_file() {
            let text = fs::read(entry.path())?;
            texts.push(String::from_utf8_lossy(&text).replace("\r\n", "\n").trim().to_owned());
        }
    }
    texts.sort();
    texts.dedup();
    Ok(texts)
}

/// The packages that an installation has the programs and libraries of.
pub(super) const PACKAGES: [&str; 3] = ["roce", "roce-ibverbs", "roce-preload"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_compiled_in_is_listed_and_what_only_builds_or_tests_is_not() {
        let list = of_dependencies(Architecture::X86_64).unwrap();
        let names: Vec<&str> = list
            .lines()
            .take_while(|line| !line.is_empty())
            .filter_map(|l| l.split(' ').next())
            .collect();
        for present in ["clap", "libc", "socket2"] {
            assert!(names.contains(&present), "{present} in {names:?}");
        }
        for absent in ["roce", "roce-wire", "syn", "proptest", "serde_derive"] {
            assert!(!names.contains(&absent), "{absent} in {names:?}");
        }
        assert!(list.contains("Permission is hereby granted, free of charge"));
    }
}
