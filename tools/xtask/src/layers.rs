//! The layer check: dependencies between crates point to lower levels only, neither files nor folders
//! of a crate use each other in circles, and a module `foo` with children is `foo.rs` beside `foo/`.
//!
//! It compares the table of crates in `ARCHITECTURE.md` with `cargo metadata`. A row reads
//!
//! ```text
//! | `roce-io` | 1 | roce-wire, roce-netns (tests) |
//! ```
//!
//! crate, level, and the crates it uses: `(tests)` after a name allows it to tests only, `all`
//! stands for every crate below, `–` for none. Every crate of the workspace has a row, and each
//! dependency of code that is not a test points to a lower level.
//!
//! The paths in the tables of the page are those of the tree ([`map`]).
//!
//! [`file_graph`] says what a use between files is, and [`folder_graph`] what a folder is;
//! `tools/xtask/circles.toml` has the circles that are admitted.

mod circles;
mod file_graph;
mod folder_graph;
mod map;
mod module_tree;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::Value;

use crate::{Result, workspace};

/// What `cargo xtask layers` takes.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Print what the files and folders in the circles of this crate use of each other, and check nothing.
    #[arg(long, value_name = "CRATE")]
    circles: Option<String>,
}

/// Checks, or prints the circles of a crate.
///
/// # Errors
/// As [`check`].
pub(crate) fn run(options: &Options) -> Result<()> {
    match &options.circles {
        Some(name) => circles::print_uses(&workspace::metadata()?, name),
        None => check().map(|summary| println!("{summary}")),
    }
}

/// What a crate uses, by name; true when tests alone do.
type Uses = BTreeMap<String, bool>;

#[derive(Clone, Debug, PartialEq, Eq)]
struct CrateRule {
    level: u32,
    may_use: MayUse,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum MayUse {
    AllBelow,
    These(Uses),
}

/// Compares page and code; returns a line that says what was compared.
///
/// # Errors
/// Lists every difference.
pub(crate) fn check() -> Result<String> {
    let page = workspace::root().join("ARCHITECTURE.md");
    let page = fs::read_to_string(&page).map_err(|error| format!("{}: {error}", page.display()))?;
    let rules = rules_in(&page);
    if rules.is_empty() {
        return Err("ARCHITECTURE.md has no table `| crate | level | may use |`".into());
    }
    let metadata = workspace::metadata()?;
    let crates = crates_in(&metadata);
    let differences = compare(&rules, &crates);
    if !differences.is_empty() {
        return Err(differences.join("\n").into());
    }
    let missing = map::missing(&page, workspace::root());
    if !missing.is_empty() {
        return Err(missing.join("\n").into());
    }
    let misplaced = misplaced(&rust_files(&metadata)?);
    if !misplaced.is_empty() {
        return Err(misplaced.join("\n").into());
    }
    let files = circles::check(&metadata)?;
    let count: usize = crates.values().map(Uses::len).sum();
    Ok(format!("{} crates, {count} dependencies, all to lower levels; {files}", crates.len()))
}

/// Returns the Rust files of all crates, those of their tests and of fuzzing included.
fn rust_files(metadata: &Value) -> Result<Vec<PathBuf>> {
    let manifests = metadata["packages"].as_array().into_iter().flatten();
    let manifests = manifests.filter_map(|package| package["manifest_path"].as_str());
    let folders = manifests.filter_map(|manifest| Path::new(manifest).parent().map(Path::to_owned));
    let mut files = Vec::new();
    for folder in folders.chain([workspace::root().join("fuzz")]) {
        files.append(&mut workspace::rust_files(&folder)?);
    }
    Ok(files)
}

/// Names each file `mod.rs`, and where it belongs.
fn misplaced(files: &[PathBuf]) -> Vec<String> {
    let old = files.iter().filter(|file| file.ends_with("mod.rs"));
    let fault = |file: &PathBuf| {
        let beside = file.parent().unwrap_or(Path::new("")).with_extension("rs");
        format!("{} is to be {}", file.display(), beside.display())
    };
    old.map(fault).collect()
}

/// The rows of the table of crates. Other tables of the page have no level in the second column.
fn rules_in(page: &str) -> BTreeMap<String, CrateRule> {
    let mut rules = BTreeMap::new();
    for line in page.lines() {
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        let &[name, level, may_use, ..] = cells.as_slice() else { continue };
        let Ok(level) = level.parse() else { continue };
        rules
            .insert(crate_name(name).to_owned(), CrateRule { level, may_use: may_use_in(may_use) });
    }
    rules
}

fn may_use_in(cell: &str) -> MayUse {
    if cell == "all" {
        return MayUse::AllBelow;
    }
    let names = cell.split(',').map(str::trim).filter(|name| !matches!(*name, "" | "–" | "-"));
    MayUse::These(
        names
            .map(|name| match name.strip_suffix("(tests)") {
                Some(name) => (crate_name(name).to_owned(), true),
                None => (crate_name(name).to_owned(), false),
            })
            .collect(),
    )
}

/// `crates/roce-io` in backticks, or `roce-io`: the crate's name.
fn crate_name(cell: &str) -> &str {
    let path = cell.trim().trim_matches('`');
    path.rsplit('/').next().unwrap_or(path)
}

/// Each crate of the workspace with those of its dependencies that are in the workspace too.
fn crates_in(metadata: &Value) -> BTreeMap<String, Uses> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    // Any crate may use macros: the compiled crate holds none.
    let packages: Vec<&Value> = packages.filter(|package| !is_proc_macro(package)).collect();
    let names: BTreeSet<&str> =
        packages.iter().filter_map(|package| package["name"].as_str()).collect();
    packages
        .iter()
        .filter_map(|package| {
            let mut uses = Uses::new();
            for dependency in package["dependencies"].as_array().into_iter().flatten() {
                let name = dependency["name"].as_str().filter(|name| names.contains(name));
                let tests_only = dependency["kind"] == "dev";
                if let Some(name) = name {
                    *uses.entry(name.to_owned()).or_insert(true) &= tests_only;
                }
            }
            Some((package["name"].as_str()?.to_owned(), uses))
        })
        .collect()
}

fn is_proc_macro(package: &Value) -> bool {
    package["targets"].as_array().into_iter().flatten().any(|it| it["kind"][0] == "proc-macro")
}

fn compare(rules: &BTreeMap<String, CrateRule>, crates: &BTreeMap<String, Uses>) -> Vec<String> {
    let mut differences = Vec::new();
    for name in crates.keys().filter(|name| !rules.contains_key(*name)) {
        differences.push(format!("{name} has no row in ARCHITECTURE.md"));
    }
    for name in rules.keys().filter(|name| !crates.contains_key(*name)) {
        differences.push(format!("ARCHITECTURE.md has a row for {name}, which does not exist"));
    }
    for (name, uses) in crates {
        let Some(rule) = rules.get(name) else { continue };
        for (used, tests_only) in uses {
            let Some(below) = rules.get(used) else { continue };
            if below.level >= rule.level && !tests_only {
                differences.push(format!(
                    "{name} (level {}) uses {used} (level {}): dependencies point to lower levels only",
                    rule.level, below.level
                ));
            }
            if let MayUse::These(allowed) = &rule.may_use {
                match allowed.get(used) {
                    None => {
                        differences.push(format!("{name} uses {used}; its row does not say so"))
                    }
                    Some(true) if !tests_only => differences
                        .push(format!("{name} uses {used}; its row allows that to tests only")),
                    Some(_) => {}
                }
            }
        }
        if let MayUse::These(allowed) = &rule.may_use {
            for unused in allowed.keys().filter(|allowed| !uses.contains_key(*allowed)) {
                differences
                    .push(format!("the row of {name} names {unused}, which it does not use"));
            }
        }
    }
    differences
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "\
# Crates\n\
| crate | level | may use |\n\
|---|---|---|\n\
| `crates/wire` | 0 | – |\n\
| `crates/sim` | 0 | – |\n\
| `crates/engine` | 1 | wire, sim (tests) |\n\
| `tools/all` | 4 | all |\n\
\n\
| some | other | table |\n";

    fn crates(dependencies: &[(&str, &str, bool)]) -> BTreeMap<String, Uses> {
        let mut crates: BTreeMap<String, Uses> =
            ["wire", "sim", "engine", "all"].map(|name| (name.to_owned(), Uses::new())).into();
        for (from, to, tests_only) in dependencies {
            crates.get_mut(*from).unwrap().insert((*to).to_owned(), *tests_only);
        }
        crates
    }

    const AS_WRITTEN: [(&str, &str, bool); 3] =
        [("engine", "wire", false), ("engine", "sim", true), ("all", "engine", false)];

    fn differences(dependencies: &[(&str, &str, bool)]) -> Vec<String> {
        compare(&rules_in(PAGE), &crates(dependencies))
    }

    #[test]
    fn a_workspace_like_its_page_passes() {
        assert_eq!(differences(&AS_WRITTEN), Vec::<String>::new());
    }

    #[test]
    fn a_dependency_on_the_same_or_a_higher_level_is_named() {
        for (from, to) in [("wire", "engine"), ("wire", "sim")] {
            let mut dependencies = AS_WRITTEN.to_vec();
            dependencies.push((from, to, false));
            let found = differences(&dependencies).join("\n");
            assert!(found.contains(&format!("{from} (level 0) uses {to}")), "{found}");
        }
    }

    #[test]
    fn tests_may_use_a_crate_of_any_level_that_their_row_names() {
        let page =
            PAGE.replace("| `crates/wire` | 0 | – |", "| `crates/wire` | 0 | engine (tests) |");
        let mut dependencies = AS_WRITTEN.to_vec();
        dependencies.push(("wire", "engine", true));
        assert_eq!(compare(&rules_in(&page), &crates(&dependencies)), Vec::<String>::new());
        assert_eq!(differences(&dependencies), ["wire uses engine; its row does not say so"]);
    }

    #[test]
    fn what_is_allowed_to_tests_is_not_allowed_to_the_crate() {
        let mut dependencies = AS_WRITTEN.to_vec();
        dependencies[1].2 = false;
        assert_eq!(
            differences(&dependencies),
            ["engine uses sim; its row allows that to tests only"]
        );
    }

    #[test]
    fn a_crate_without_a_row_and_a_row_without_a_crate_are_named() {
        let mut with_stranger = crates(&AS_WRITTEN);
        with_stranger.insert("stranger".into(), Uses::new());
        with_stranger.remove("sim");
        let found = compare(&rules_in(PAGE), &with_stranger).join("\n");
        assert!(found.contains("stranger has no row"), "{found}");
        assert!(found.contains("a row for sim, which does not exist"), "{found}");
    }

    #[test]
    fn a_module_in_mod_rs_is_named_with_its_place_beside_the_folder() {
        let files = ["src/queue/mod.rs", "src/queue/entry.rs", "src/table.rs", "src/row_mod.rs"];
        let found = misplaced(&files.map(PathBuf::from));
        assert_eq!(found, ["src/queue/mod.rs is to be src/queue.rs"]);
    }

    #[test]
    fn a_row_that_names_a_dependency_too_many_is_named() {
        let found = differences(&AS_WRITTEN[..1]);
        assert_eq!(found, ["the row of engine names sim, which it does not use"]);
    }
}
