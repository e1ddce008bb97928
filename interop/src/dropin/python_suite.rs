//! rdma-core's own tests of its Python bindings, held against a list of what each must do.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::folder::Folder;
use super::local::PrivateHosts;
use crate::fault::{Fault, expect};
use crate::matrix::Case;
use crate::process::Process;
use crate::world::program;

/// The time of the whole suite.
const LIMIT: Duration = Duration::from_secs(300);
/// Where the package python3-pyverbs has the tests, some of them packed.
const PACKAGED: &str = "/usr/share/doc/rdma-core/tests";
/// Debian's, for which the package is made; another one may come first in `PATH`.
pub(super) const PYTHON: &str = "/usr/bin/python3";
/// What each test must do; its head has the words.
const EXPECTED: &str = include_str!("python_suite.txt");

/// Returns the suite as a case.
pub fn cases() -> Vec<Case<PrivateHosts>> {
    let case = |row: &str, run: fn() -> Result<(), Fault>| Case {
        group: "Python",
        row: row.to_owned(),
        column: "ours ↔ ours".to_owned(),
        path_mtu: 1024,
        netem: "",
        run: Box::new(move |_| run()),
    };
    vec![case("a tutorial's queue pair", tutorial), case("rdma-core's suite", suite)]
}

fn tutorial() -> Result<(), Fault> {
    let folder = Folder::new("tutorial")?;
    let text = run(&folder, "tutorial.py", include_str!("tutorial.py"), &[])?;
    expect(text.contains("memory of 8192 bytes") && text.contains("is in state 3"), || {
        format!("it printed: {text}")
    })
}

fn suite() -> Result<(), Fault> {
    let folder = Folder::new("suite")?;
    let tests = folder.path().join("tests");
    unpack(Path::new(PACKAGED), &tests).map_err(Fault::ours("unpack the tests"))?;
    let list = expected(EXPECTED);
    let left_out: Vec<&str> = list.iter().filter(|it| *it.1 == "out").map(|it| *it.0).collect();
    fs::write(folder.path().join("left-out"), left_out.join("\n"))
        .map_err(Fault::ours("write the names of tests"))?;
    let arguments = [folder.path().to_str().unwrap_or_default(), "--dev", "roce0", "--gid", "1"];
    let text = run(&folder, "suite.py", include_str!("python_suite.py"), &arguments)?;
    let seen = results(&text);
    expect(
        text.lines().any(|line| line.starts_with("[0] END ") || line.starts_with("END ")),
        || {
            let last: Vec<&str> = text.lines().rev().take(5).collect();
            format!("it did not run to its end; its last lines: {last:?}")
        },
    )?;
    let differences = differences(&list, &seen);
    expect(differences.is_empty(), || differences.join("\n     "))
}

/// What became of a test, and the reason where it was skipped or failed.
type Results = BTreeMap<String, (String, String)>;

/// Returns the lines of `python_suite.py`.
fn results(text: &str) -> Results {
    let lines = text.lines().filter_map(|line| line.split_once("RESULT ").map(|(_, rest)| rest));
    lines
        .filter_map(|line| {
            let mut words = line.splitn(3, ' ');
            let (name, outcome) = (words.next()?, words.next()?);
            Some((name.to_owned(), (outcome.to_owned(), words.next().unwrap_or("").to_owned())))
        })
        .collect()
}

/// Returns what each test must do.
fn expected(list: &str) -> BTreeMap<&str, &str> {
    let lines = list.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .filter_map(|line| {
            let (outcome, rest) = line.split_once(' ')?;
            Some((rest.split_once(':').map_or(rest, |(name, _)| name), outcome))
        })
        .collect()
}

/// Returns a sentence for each test that did something else.
fn differences(expected: &BTreeMap<&str, &str>, seen: &Results) -> Vec<String> {
    let mut differences = Vec::new();
    for (name, (outcome, why)) in seen {
        match expected.get(name.as_str()) {
            None => differences.push(format!("{name} is not in the list: {outcome} {why}")),
            Some(&"may") if matches!(outcome.as_str(), "ok" | "skip") => {}
            Some(wanted) if wanted != outcome => {
                differences.push(format!("{name}: expected {wanted}, is {outcome} {why}"));
            }
            Some(_) => {}
        }
    }
    let missing =
        expected.iter().filter(|(name, wanted)| **wanted != "out" && !seen.contains_key(**name));
    differences.extend(missing.map(|(name, _)| format!("{name} did not run")));
    differences
}

/// Runs a script on our library, and returns what it printed.
fn run(folder: &Folder, name: &str, script: &str, arguments: &[&str]) -> Result<String, Fault> {
    let file = folder.path().join(name);
    fs::write(&file, script).map_err(Fault::ours("write the script"))?;
    let mut command = Command::new(program("roce")?);
    command.args(["run", "--local", "1", "--", PYTHON]).arg(&file).args(arguments);
    let ended = Process::start(command, |mut command| command.spawn())?.wait(LIMIT)?;
    expect(ended.status.success(), || format!("{}: {}", ended.status, ended.text))?;
    Ok(ended.text)
}

/// Copies the tests, and unpacks those that are packed.
fn unpack(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let path = entry?.path();
        let Some(name) = path.file_name() else { continue };
        let target = to.join(name);
        fs::copy(&path, &target)?;
        if path.extension().is_some_and(|it| it == "gz") {
            let status = Command::new("gzip").arg("-df").arg(&target).status()?;
            if !status.success() {
                return Err(std::io::Error::other(format!("gzip of {}: {status}", path.display())));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_fails_passes_unexpectedly_or_does_not_run_is_a_difference() {
        let list = "# comment\nok a.b\nskip c.d: windows\nok e.f\nmay g.h: pages\nout i.j: cm\n";
        let text = "[0] RESULT a.b ok \n[0] RESULT c.d ok \nRESULT g.h ok \nRESULT x.y fail Traceback | line\n";
        let differences = differences(&expected(list), &results(text));
        assert_eq!(
            differences,
            [
                "c.d: expected skip, is ok ",
                "x.y is not in the list: fail Traceback | line",
                "e.f did not run"
            ]
        );
    }

    #[test]
    fn the_list_names_what_is_missing_for_each_test_that_is_skipped() {
        let list = expected(EXPECTED);
        for line in
            EXPECTED.lines().filter(|line| !line.starts_with("ok ") && !line.starts_with('#'))
        {
            assert!(line.split_once(": ").is_some_and(|(_, why)| why.len() > 2), "{line}");
        }
        assert!(list.values().all(|outcome| matches!(*outcome, "ok" | "skip" | "may" | "out")));
        assert!(list.values().filter(|outcome| **outcome == "ok").count() >= 118);
    }
}
