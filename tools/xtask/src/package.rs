//! `cargo xtask package`: what would be published, in the order of its dependencies.

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
    for name in published(&metadata) {
        cargo.args(["--package", name]);
    }
    if cargo.status()?.success() { Ok(()) } else { Err("a package is not complete".into()) }
}

/// Returns the names of the crates that may be published.
fn published(metadata: &Value) -> Vec<&str> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    // An empty list of registries is what `publish = false` says.
    packages
        .filter(|package| package["publish"].is_null())
        .filter_map(|package| package["name"].as_str())
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn what_a_published_crate_depends_on_is_published() {
        let metadata = workspace::metadata().unwrap();
        let published: BTreeSet<_> = published(&metadata).into_iter().collect();
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
