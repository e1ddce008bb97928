//! The circles of files and folders that each crate has, against those that `tools/xtask/circles.toml` admits.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use super::file_graph::FileGraph;
use super::folder_graph::{self, FolderCircle};
use crate::{Result, workspace};

/// The circles that are admitted.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Admitted {
    /// By the name of the crate.
    #[serde(default)]
    circles: BTreeMap<String, AdmittedCircle>,
}

/// The circles that one crate may have.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AdmittedCircle {
    /// Maximum number of files of the crate that are in a circle.
    #[serde(default)]
    files: usize,
    /// Maximum number of folders of the crate that are in a circle.
    #[serde(default)]
    folders: usize,
    /// Why there are circles.
    reason: String,
}

/// The circles of one crate.
#[derive(Debug, Default)]
struct CrateCircles {
    /// Number of its files.
    files: usize,
    /// Number of its files that are in a circle.
    in_circles: usize,
    /// Number of files in the largest circle.
    largest: usize,
    /// What the files of the circles use of each other, a line each.
    uses: Vec<String>,
    /// Circles of its folders.
    of_folders: Vec<FolderCircle>,
}

/// Compares the circles of all crates with those that are admitted. Returns lines on what was found.
///
/// # Errors
/// Lists circles that are not admitted, and admitted ones that do not exist.
pub(super) fn check(metadata: &Value) -> Result<String> {
    let text = std::fs::read_to_string(workspace::root().join(LIST))?;
    let admitted: Admitted = toml::from_str(&text).map_err(|error| format!("{LIST}: {error}"))?;
    let crates = read_all(metadata)?;
    let faults = compare(&admitted, &crates);
    if faults.is_empty() { Ok(summary(&admitted, &crates)) } else { Err(faults.join("\n").into()) }
}

/// Prints what the files of the circles of one crate use of each other.
///
/// # Errors
/// When there is no such crate.
pub(super) fn print_uses(metadata: &Value, name: &str) -> Result<()> {
    let crates = read_all(metadata)?;
    let circles = crates.get(name).ok_or_else(|| format!("there is no crate {name}"))?;
    circles.uses.iter().for_each(|line| println!("{line}"));
    for circle in &circles.of_folders {
        println!("{}", circle.line(name));
        circle.uses.iter().for_each(|line| println!("  {line}"));
    }
    println!("{}", circles.line(name));
    Ok(())
}

/// Reads the libraries and programs of all crates.
fn read_all(metadata: &Value) -> Result<BTreeMap<String, CrateCircles>> {
    let mut crates = BTreeMap::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let mut circles = CrateCircles::default();
        for target in package["targets"].as_array().into_iter().flatten() {
            let kind = target["kind"][0].as_str().unwrap_or_default();
            let is_code = kind == "bin" || kind.ends_with("lib") || kind == "proc-macro";
            let root = target["src_path"].as_str().map(PathBuf::from);
            if let Some(root) = root.filter(|_| is_code) {
                circles.add(&root)?;
            }
        }
        crates.insert(package["name"].as_str().unwrap_or_default().to_owned(), circles);
    }
    Ok(crates)
}

impl CrateCircles {
    /// Adds a library or program.
    fn add(&mut self, root: &Path) -> Result<()> {
        let mut graph = FileGraph::read(root)?;
        for file in &mut graph.files {
            if let Ok(short) = file.strip_prefix(workspace::root()) {
                *file = short.to_owned();
            }
        }
        self.files += graph.files.len();
        for circle in graph.circles() {
            self.in_circles += circle.len();
            self.largest = self.largest.max(circle.len());
            self.uses.extend(graph.uses_within(&circle));
        }
        self.of_folders.extend(folder_graph::circles(&graph));
        Ok(())
    }

    /// Returns the number of its folders that are in a circle.
    fn folders_in_circles(&self) -> usize {
        self.of_folders.iter().map(|circle| circle.folders.len()).sum()
    }

    fn line(&self, name: &str) -> String {
        let Self { files, in_circles, largest, .. } = self;
        format!("{name}: largest circle {largest} files, in circles {in_circles} of {files}")
    }
}

impl FolderCircle {
    fn line(&self, name: &str) -> String {
        format!("{name}: these folders use each other in a circle: {}", self.folders.join(", "))
    }
}

fn compare(admitted: &Admitted, crates: &BTreeMap<String, CrateCircles>) -> Vec<String> {
    let mut faults = Vec::new();
    for (name, circles) in crates {
        let rule = admitted.circles.get(name);
        let maximum = rule.map_or(0, |rule| rule.files);
        if circles.in_circles > maximum {
            let found = circles.in_circles;
            faults
                .push(format!("{name}: {found} files are in circles, and {LIST} admits {maximum}"));
            show_uses(&mut faults, name, &circles.uses);
        }
        if circles.folders_in_circles() > rule.map_or(0, |rule| rule.folders) {
            for circle in &circles.of_folders {
                faults.push(circle.line(name));
                show_uses(&mut faults, name, &circle.uses);
            }
        }
        if rule.is_some_and(|rule| rule.reason.trim().is_empty()) {
            faults.push(format!("{LIST}: {name} has no reason"));
        }
    }
    for name in admitted.circles.keys() {
        let has_none =
            |circles: &CrateCircles| circles.in_circles == 0 && circles.of_folders.is_empty();
        if crates.get(name).is_none_or(has_none) {
            faults.push(format!("{LIST}: {name} has no circle any more; delete its entry"));
        }
    }
    faults
}

/// Adds the first uses of a circle to the faults, and how to see all.
fn show_uses(faults: &mut Vec<String>, name: &str, uses: &[String]) {
    faults.extend(uses.iter().take(MAX_USES_SHOWN).map(|line| format!("  {line}")));
    if uses.len() > MAX_USES_SHOWN {
        faults.push(format!("  …; all of them: cargo xtask layers --circles {name}"));
    }
}

/// Returns a line for each crate with a circle.
fn summary(admitted: &Admitted, crates: &BTreeMap<String, CrateCircles>) -> String {
    let with_circles = crates
        .iter()
        .filter(|(_, circles)| circles.in_circles > 0 || !circles.of_folders.is_empty());
    let lines = with_circles.map(|(name, circles)| {
        let rule = admitted.circles.get(name);
        let note = |found: usize, maximum: usize| match found < maximum {
            true => format!(" (admitted are {maximum}: lower that in {LIST})"),
            false => String::new(),
        };
        let of_files = note(circles.in_circles, rule.map_or(0, |rule| rule.files));
        let mut line = format!("\n      {}{of_files}", circles.line(name));
        let maximum = rule.map_or(0, |rule| rule.folders);
        if maximum > 0 {
            let found = circles.folders_in_circles();
            line += &format!("; folders in circles {found}{}", note(found, maximum));
        }
        line
    });
    let files: usize = crates.values().map(|circles| circles.files).sum();
    format!("{files} files{}", lines.collect::<String>())
}

/// The list of circles that are admitted.
const LIST: &str = "tools/xtask/circles.toml";

const MAX_USES_SHOWN: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(list: &str, in_circles: usize) -> Vec<String> {
        compare(&toml::from_str(list).unwrap(), &crates(in_circles))
    }

    fn crates(in_circles: usize) -> BTreeMap<String, CrateCircles> {
        let uses =
            (0..in_circles).map(|file| format!("{file}.rs uses next.rs: next::It")).collect();
        let circles = CrateCircles {
            files: 9,
            in_circles,
            largest: in_circles,
            uses,
            of_folders: Vec::new(),
        };
        [("engine".to_owned(), circles), ("wire".to_owned(), CrateCircles::default())].into()
    }

    const LIST: &str = "[circles.engine]\nfiles = 4\nreason = 'the table points back'";

    #[test]
    fn circles_of_as_many_files_as_admitted_pass() {
        assert_eq!(faults(LIST, 4), Vec::<String>::new());
        assert_eq!(faults("", 0), Vec::<String>::new());
    }

    #[test]
    fn a_file_more_fails_and_the_uses_are_shown() {
        let found = faults(LIST, 5).join("\n");
        assert!(found.contains("engine: 5 files are in circles"), "{found}");
        assert!(found.contains("admits 4") && found.contains("4.rs uses next.rs"), "{found}");
        assert!(faults("", 2).join("\n").contains("admits 0"));
    }

    #[test]
    fn a_circle_of_folders_fails_and_its_uses_are_shown() {
        let circle = FolderCircle {
            folders: vec!["queue".into(), "table".into()],
            uses: vec!["queue.rs uses table/row.rs: Row".into()],
        };
        let mut crates = crates(0);
        crates.get_mut("engine").unwrap().of_folders.push(circle);
        let expected = [
            "engine: these folders use each other in a circle: queue, table",
            "  queue.rs uses table/row.rs: Row",
        ];
        assert_eq!(compare(&Admitted::default(), &crates), expected);
        let admits = |folders: usize| {
            let list = format!("[circles.engine]\nfolders = {folders}\nreason = 'a row is one'");
            toml::from_str::<Admitted>(&list).unwrap()
        };
        assert_eq!(compare(&admits(1), &crates), expected);
        assert_eq!(compare(&admits(2), &crates), Vec::<String>::new());
        let lines = summary(&admits(3), &crates);
        assert!(lines.contains("folders in circles 2 (admitted are 3: lower that"), "{lines}");
    }

    #[test]
    fn a_listed_circle_that_no_longer_exists_fails() {
        let found = faults(LIST, 0).join("\n");
        assert!(found.contains("engine has no circle any more"), "{found}");
        let found = faults(&LIST.replace("engine", "wire"), 0).join("\n");
        assert!(found.contains("wire has no circle any more"), "{found}");
        let found = faults(&LIST.replace("engine", "gone"), 0).join("\n");
        assert!(found.contains("gone has no circle any more"), "{found}");
    }

    #[test]
    fn a_circle_that_has_shrunk_passes_with_a_note() {
        let list: Admitted = toml::from_str(LIST).unwrap();
        assert_eq!(compare(&list, &crates(3)), Vec::<String>::new());
        let lines = summary(&list, &crates(3));
        assert!(lines.contains("largest circle 3 files, in circles 3 of 9"), "{lines}");
        assert!(lines.contains("admitted are 4: lower that"), "{lines}");
        assert!(!summary(&list, &crates(4)).contains("lower that"));
    }

    #[test]
    fn a_circle_without_a_reason_fails() {
        let list = LIST.replace("the table points back", " ");
        assert!(faults(&list, 4).join("\n").contains("engine has no reason"));
    }
}
