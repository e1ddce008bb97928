//! The list of what a release is made of (SBOM), in the form of CycloneDX.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::architecture::Architecture;
use super::licences::{self, Package};
use crate::{Result, workspace};

/// Writes the list into `folder` and returns the file.
pub(super) fn write(architecture: Architecture, folder: &Path) -> Result<PathBuf> {
    let version = env!("CARGO_PKG_VERSION");
    let file = folder.join(format!("roce-{version}-{}.cdx.json", architecture.target()));
    let time = time_text(super::tarball::time_of_release()?);
    let list = list_of(&licences::compiled_in(architecture)?, &checksums()?, version, &time);
    fs::write(&file, serde_json::to_string_pretty(&list)? + "\n")?;
    Ok(file)
}

fn list_of(
    packages: &[Package],
    checksums: &BTreeMap<(String, String), String>,
    version: &str,
    time: &str,
) -> Value {
    let own = format!("pkg:cargo/roce@{version}");
    let components: Vec<Value> = packages
        .iter()
        .map(|package| {
            let mut component = json!({
                "type": "library",
                "bom-ref": reference(package),
                "name": package.name,
                "version": package.version,
                "licenses": [{ "expression": spdx(&package.licence) }],
                "purl": reference(package),
            });
            if let Some(sum) = checksums.get(&(package.name.clone(), package.version.clone())) {
                component["hashes"] = json!([{ "alg": "SHA-256", "content": sum }]);
            }
            component
        })
        .collect();
    let all: Vec<String> = packages.iter().map(reference).collect();
    json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": time,
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": "roce",
                "version": version,
                "licenses": [{ "expression": "MIT OR Apache-2.0" }],
                "purl": own,
            },
        },
        "components": components,
        "dependencies": [{ "ref": own, "dependsOn": all }],
    })
}

fn reference(package: &Package) -> String {
    // The one character of versions that means something in an address.
    format!("pkg:cargo/{}@{}", package.name, package.version.replace('+', "%2B"))
}

/// Returns an expression of SPDX: older crates have a stroke for "or".
fn spdx(licence: &str) -> String {
    licence.split('/').map(str::trim).collect::<Vec<_>>().join(" OR ")
}

/// Returns the SHA-256 of each package of the index, by name and version, as `Cargo.lock` has them.
fn checksums() -> Result<BTreeMap<(String, String), String>> {
    let text = fs::read_to_string(workspace::root().join("Cargo.lock"))?;
    let lock: toml::Table = text.parse()?;
    let packages =
        lock.get("package").and_then(toml::Value::as_array).ok_or("an empty Cargo.lock")?;
    let text = |package: &toml::Value, key: &str| package.get(key)?.as_str().map(str::to_owned);
    let sums = packages.iter().filter_map(|package| {
        Some(((text(package, "name")?, text(package, "version")?), text(package, "checksum")?))
    });
    Ok(sums.collect())
}

/// Returns a time of the Unix clock as RFC 3339 writes it.
fn time_text(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // A year that begins in March ends with the leap day.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let shifted = (5 * day + 2) / 153;
    let (day, month) = (day - (153 * shifted + 2) / 5 + 1, (shifted + 2) % 12 + 1);
    let year = era * 400 + year + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_rfc_3339_has_them() {
        assert_eq!(time_text(0), "1970-01-01T00:00:00Z");
        assert_eq!(time_text(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(time_text(1_795_717_499), "2026-11-26T18:24:59Z");
    }

    #[test]
    fn the_list_names_each_package_with_its_licence_and_the_checksum_of_the_lock_file() {
        let packages = licences::compiled_in(Architecture::Aarch64).unwrap();
        let list = list_of(&packages, &checksums().unwrap(), "1.2.3", "2026-01-01T00:00:00Z");
        let components = list["components"].as_array().unwrap();
        assert_eq!(components.len(), packages.len());
        for component in components {
            let sum = component["hashes"][0]["content"].as_str().unwrap_or_default();
            assert_eq!(sum.len(), 64, "{component}");
            let licence = component["licenses"][0]["expression"].as_str().unwrap();
            assert!(!licence.contains('/'), "{component}");
        }
        let depended = list["dependencies"][0]["dependsOn"].as_array().unwrap();
        assert_eq!(depended.len(), components.len());
        assert!(depended.iter().any(|it| it.as_str().unwrap().starts_with("pkg:cargo/libc@0.2")));
    }
}
