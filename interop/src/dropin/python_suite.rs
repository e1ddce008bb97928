//! rdma-core's own tests of its Python bindings, held against a list of what each must do.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::folder::Folder;
use super::local::PrivateHosts;
use crate::fault::{Fault, expect};
use crate::matrix::Case;
use crate::process;
use crate::world::program;

/// The time of the whole suite.
const LIMIT: Duration = Duration::from_secs(300);
/// Where the package python3-pyverbs has the tests, some of them packed.
const PACKAGED: &str = "/usr/share/doc/rdma-core/tests";
/// Debian's, for which the package is made; another one may come first in `PATH`.
pub(super) const PYTHON: &str = "/usr/bin/python3";
/// What each test of a release of rdma-core must do; the head of the first has the words.
const EXPECTED: &[(&str, &str)] = &[
    ("44", include_str!("python_suite/44.txt")),
    ("56", include_str!("python_suite/56.txt")),
    ("65", include_str!("python_suite/65.txt")),
];
/// Stands before `rdma` of iproute2, which ends with 1 where the kernel has no RDMA. It prints what that
/// prints where the kernel has no devices; the suite of 56 and later asks it first, and then reads the files.
const NO_LINKS: &str = "#!/bin/sh\necho '[ ]'\n";

/// Returns the suite as a case.
pub fn cases() -> Vec<Case<PrivateHosts>> {
    let case = |row: &str, run: fn() -> Result<(), Fault>| {
        Case::new("Python", row, "ours ↔ ours", 1024, move |_| run())
    };
    vec![case("a tutorial's queue pair", tutorial), case("rdma-core's suite", suite)]
}

fn tutorial() -> Result<(), Fault> {
    let folder = Folder::new("tutorial")?;
    let text = run(&folder, "tutorial.py", include_str!("python_suite/tutorial.py"), &[])?;
    expect(text.contains("memory of 8192 bytes") && text.contains("is in state 3"), || {
        format!("it printed: {text}")
    })
}

fn suite() -> Result<(), Fault> {
    let version = installed_version()?;
    let release = version.split('.').next().unwrap_or_default();
    let text = EXPECTED.iter().find(|(of, _)| *of == release).map(|(_, text)| *text);
    let text = text.ok_or_else(|| Fault::Wrong(format!("there is no list for {version}")))?;
    let list = expected(text);
    let folder = Folder::new("suite")?;
    let tests = folder.path().join("tests");
    unpack(Path::new(PACKAGED), &tests).map_err(Fault::ours("unpack the tests"))?;
    let left_out: Vec<&str> =
        list.iter().filter(|it| it.1.outcome == "out").map(|it| *it.0).collect();
    fs::write(folder.path().join("left-out"), left_out.join("\n"))
        .map_err(Fault::ours("write the names of tests"))?;
    if !kernel_tells_links() {
        let rdma = folder.path().join("rdma");
        fs::write(&rdma, NO_LINKS)
            .and_then(|()| fs::set_permissions(&rdma, fs::Permissions::from_mode(0o755)))
            .map_err(Fault::ours("write a script"))?;
    }
    let arguments = [folder.path().to_str().unwrap_or_default(), "--dev", "roce0", "--gid", "1"];
    let text = run(&folder, "suite.py", include_str!("python_suite/run.py"), &arguments)?;
    let seen = results(&text);
    expect(
        text.lines().any(|line| line.starts_with("[0] END ") || line.starts_with("END ")),
        || {
            let last: Vec<&str> = text.lines().rev().take(5).collect();
            format!("it did not run to its end; its last lines: {last:?}")
        },
    )?;
    let differences = differences(&list, &seen);
    expect(differences.is_empty(), || differences.join("\n     "))?;
    eprintln!("     rdma-core {version}: {}", counts(&list, &seen));
    Ok(())
}

/// Returns the version of the package with the tests.
fn installed_version() -> Result<String, Fault> {
    let mut query = Command::new("dpkg-query");
    query.args(["--show", "--showformat=${Version}", "python3-pyverbs"]);
    let output = query.output().map_err(Fault::ours("start dpkg-query"))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns true if `rdma` of iproute2 gets an answer from the kernel.
fn kernel_tells_links() -> bool {
    let mut rdma = Command::new("rdma");
    rdma.args(["link", "show", "-j"]).stdin(Stdio::null());
    rdma.stdout(Stdio::null()).stderr(Stdio::null());
    rdma.status().is_ok_and(|status| status.success())
}

/// What became of a test, and the reason where it was skipped or failed.
type Results = BTreeMap<String, (String, String)>;

/// Returns the lines of `python_suite/run.py`.
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

/// What a test must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wanted<'a> {
    outcome: &'a str,
    /// What the test lacks, if it does not pass everywhere.
    why: &'a str,
}

/// What each test must do. A name that ends with `*` stands for all tests that begin with what is before
/// it and have no line of their own.
type List<'a> = BTreeMap<&'a str, Wanted<'a>>;

/// Returns the list of a text.
fn expected(text: &str) -> List<'_> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .filter_map(|line| {
            let (outcome, rest) = line.split_once(' ')?;
            let (name, why) = rest.split_once(": ").unwrap_or((rest, ""));
            Some((name, Wanted { outcome, why }))
        })
        .collect()
}

/// Returns what a test must do.
fn wanted<'a>(list: &List<'a>, name: &str) -> Option<Wanted<'a>> {
    let of_group = || {
        let groups = list.iter().filter_map(|(line, it)| Some((line.strip_suffix('*')?, *it)));
        let matching = groups.filter(|(start, _)| name.starts_with(start));
        matching.max_by_key(|(start, _)| start.len()).map(|(_, it)| it)
    };
    list.get(name).copied().or_else(of_group)
}

/// Returns a sentence for each test that did something else.
fn differences(list: &List<'_>, seen: &Results) -> Vec<String> {
    let mut differences = Vec::new();
    for (name, (outcome, why)) in seen {
        match wanted(list, name).map(|it| it.outcome) {
            None => differences.push(format!("{name} is not in the list: {outcome} {why}")),
            Some("may") if matches!(outcome.as_str(), "ok" | "skip") => {}
            Some(wanted) if wanted != outcome => {
                differences.push(format!("{name}: expected {wanted}, is {outcome} {why}"));
            }
            Some(_) => {}
        }
    }
    let did_run = |line: &str| match line.strip_suffix('*') {
        Some(start) => seen.keys().any(|name| name.starts_with(start)),
        None => seen.contains_key(line),
    };
    let missing = list.iter().filter(|(line, it)| it.outcome != "out" && !did_run(line));
    differences.extend(missing.map(|(line, _)| format!("{line} did not run")));
    differences
}

/// Returns how many tests passed, and how many were skipped or left out for which reason.
fn counts(list: &List<'_>, seen: &Results) -> String {
    let passed = seen.values().filter(|(outcome, _)| outcome == "ok").count();
    let skipped = seen.iter().filter(|(_, (outcome, _))| outcome == "skip");
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for (name, _) in skipped.clone() {
        *reasons.entry(wanted(list, name).map_or("", |it| it.why)).or_default() += 1;
    }
    let mut reasons: Vec<_> = reasons.into_iter().collect();
    reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let reasons: Vec<_> = reasons.iter().map(|(why, count)| format!("{count} {why}")).collect();
    let out: Vec<_> = list.iter().filter(|it| it.1.outcome == "out").map(|it| it.1.why).collect();
    format!(
        "{passed} passed, 0 failed, {} skipped ({}), {} left out ({})",
        skipped.count(),
        reasons.join("; "),
        out.len(),
        out.join("; "),
    )
}

/// Runs a script on our library, and returns what it printed.
fn run(folder: &Folder, name: &str, script: &str, arguments: &[&str]) -> Result<String, Fault> {
    let file = folder.path().join(name);
    fs::write(&file, script).map_err(Fault::ours("write the script"))?;
    let mut command = Command::new(program("roce")?);
    command.args(["run", "--local", "1", "--", PYTHON]).arg(&file).args(arguments);
    command.env(
        "PATH",
        format!("{}:{}", folder.path().display(), env::var("PATH").unwrap_or_default()),
    );
    let ended = process::run(command, LIMIT)?;
    expect(ended.status.success(), || format!("{}: {}", ended.status, ended.text()))?;
    Ok(ended.text())
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
        let list = "# comment\nok a.b\nskip c.d: windows\nok e.f\nmay g.h: pages\nout i.j: cm\n\
                    skip v.*: a vendor\nok v.w\nskip z.*: none\n";
        let text = "[0] RESULT a.b ok \n[0] RESULT c.d ok \nRESULT g.h ok \n\
                    RESULT v.x.y skip no device\nRESULT v.w ok \nRESULT v.z ok \n\
                    RESULT x.y fail Traceback | line\n";
        let differences = differences(&expected(list), &results(text));
        assert_eq!(
            differences,
            [
                "c.d: expected skip, is ok ",
                "v.z: expected skip, is ok ",
                "x.y is not in the list: fail Traceback | line",
                "e.f did not run",
                "z.* did not run",
            ]
        );
    }

    #[test]
    fn counts_name_each_reason_with_its_number_of_tests() {
        let list = "ok a.b\nskip c.d: windows\nskip v.*: a vendor\nout i.j: fork\n";
        let text = "RESULT a.b ok \nRESULT c.d skip x\nRESULT v.w skip y\nRESULT v.x skip y\n";
        assert_eq!(
            counts(&expected(list), &results(text)),
            "1 passed, 0 failed, 3 skipped (2 a vendor; 1 windows), 1 left out (fork)"
        );
    }

    #[test]
    fn the_lists_name_what_is_missing_for_each_test_that_is_skipped() {
        for (release, text) in EXPECTED {
            let list = expected(text);
            for (line, it) in &list {
                assert!(matches!(it.outcome, "ok" | "skip" | "may" | "out"), "{release}: {line}");
                assert_eq!(it.outcome != "ok", it.why.len() > 2, "{release}: {line}");
            }
            assert!(list.values().filter(|it| it.outcome == "ok").count() >= 118, "{release}");
        }
    }
}
