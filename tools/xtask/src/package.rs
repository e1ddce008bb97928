//! `cargo xtask package`: what would be published, in the order of its dependencies.

use std::path::Path;

use serde_json::Value;

use crate::{Result, workspace};

/// Packs each crate that is published, and builds it from its package alone.
///
/// # Errors
/// If a crate needs a file or a crate that is not published with it.
pub(crate) fn run() -> Result<()> {
    let metadata = workspace::metadata()?;
    let mut cargo = workspace::cargo();
    cargo.args(["package", "--allow-dirty"]);
    for one in Published::all(&metadata) {
        cargo.args(["--package", one.name]);
    }
    if cargo.status()?.success() { Ok(()) } else { Err("a package is not complete".into()) }
}

/// A crate that may be published.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Published<'a> {
    pub(crate) name: &'a str,
    /// Its manifest, seen from the workspace's top folder.
    pub(crate) manifest: &'a str,
    /// Other crates may use it.
    has_library: bool,
}

impl<'a> Published<'a> {
    /// Returns those of a workspace.
    fn all(metadata: &'a Value) -> Vec<Self> {
        let packages = metadata["packages"].as_array().into_iter().flatten();
        // An empty list of registries is what `publish = false` says.
        packages.filter(|package| package["publish"].is_null()).filter_map(Self::of).collect()
    }

    /// Returns those of a workspace with a public interface.
    pub(crate) fn libraries(metadata: &'a Value) -> Vec<Self> {
        let mut all = Self::all(metadata);
        all.retain(|one| one.has_library);
        all
    }

    /// Returns the example programs of all of them: package and program.
    pub(crate) fn examples(metadata: &'a Value) -> impl Iterator<Item = (&'a str, &'a str)> {
        let packages = metadata["packages"].as_array().into_iter().flatten();
        packages.filter(|package| package["publish"].is_null()).flat_map(|package| {
            let name = package["name"].as_str().unwrap_or_default();
            let targets = package["targets"].as_array().into_iter().flatten();
            let examples = targets.filter(|target| target["kind"][0] == "example");
            examples.filter_map(move |target| Some((name, target["name"].as_str()?)))
        })
    }

    fn of(package: &'a Value) -> Option<Self> {
        let manifest = Path::new(package["manifest_path"].as_str()?);
        let mut targets = package["targets"].as_array()?.iter();
        let is_library = |target: &Value| {
            target["kind"].as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == "lib"))
        };
        Some(Self {
            name: package["name"].as_str()?,
            manifest: manifest.strip_prefix(workspace::root()).ok()?.to_str()?,
            has_library: targets.any(is_library),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_published_crate_says_what_it_cannot_do_and_shows_in_a_program_what_it_can() {
        let metadata = workspace::metadata().unwrap();
        let shown: BTreeSet<_> = Published::examples(&metadata).map(|(name, _)| name).collect();
        for one in Published::all(&metadata) {
            let readme = workspace::root().join(one.manifest).with_file_name("README.md");
            let readme = std::fs::read_to_string(readme).unwrap();
            assert!(readme.contains("\n## Limits\n"), "{}", one.name);
            assert!(!one.has_library || shown.contains(one.name), "{} has no example", one.name);
        }
    }

    #[test]
    fn what_a_published_crate_depends_on_is_published() {
        let metadata = workspace::metadata().unwrap();
        let published: BTreeSet<_> =
            Published::all(&metadata).into_iter().map(|one| one.name).collect();
        assert!(published.contains("roce") && published.contains("roce-verbs"), "{published:?}");
        let packages = metadata["packages"].as_array().into_iter().flatten();
        for package in
            packages.filter(|it| it["name"].as_str().is_some_and(|it| published.contains(it)))
        {
            for needed in package["dependencies"].as_array().into_iter().flatten() {
                let name = needed["name"].as_str().unwrap();
                if !name.starts_with("roce") {
                    continue;
                }
                match needed["kind"].as_str() {
                    // Only a path: cargo leaves it out of the package, and so there is no circle.
                    Some("dev") => assert_eq!(needed["req"], "*", "{}: {name}", package["name"]),
                    _ => assert!(published.contains(name), "{}: {name}", package["name"]),
                }
            }
            for field in ["description", "readme"] {
                assert!(package[field].is_string(), "{} has no {field}", package["name"]);
            }
            assert!(!package["categories"].as_array().unwrap().is_empty(), "{}", package["name"]);
        }
    }
}
