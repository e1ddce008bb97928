//! The workspace's test programs: built once, listed, run by tier.
//!
//! A test that needs more than `cargo test` offers is marked `#[tier1]` or `#[tier2]`
//! (`tests/macros`), which libtest ignores with a reason. `--list` does not show the reason. A
//! program that is asked for its ignored tests, and only for those, prints the reasons and runs
//! nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::stages::Log;
use crate::{Result, workspace};

/// A program made of tests.
#[derive(Clone, Debug)]
pub(crate) struct TestProgram {
    /// Package and target, for people; the package alone for the one program of tests of a package.
    pub(crate) name: String,
    pub(crate) executable: PathBuf,
    /// The package's folder: tests run there, as under cargo.
    pub(crate) folder: PathBuf,
}

/// A test that is ignored for a reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ignored {
    /// Name of the test.
    test: String,
    /// The reason it gives; empty if it gives none.
    reason: String,
}

/// A test of a program, and what it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListedTest {
    /// Name within the program.
    pub(crate) name: String,
    /// Number of its tier. An ignored test whose reason is not `tier N: what it needs` has none.
    pub(crate) tier: Option<u32>,
}

/// How a program's tests went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Score {
    pub(crate) passed: usize,
    /// The names of those that failed.
    pub(crate) failures: Vec<String>,
    ignored: Vec<Ignored>,
}

impl TestProgram {
    /// A program that exists by name only.
    #[cfg(test)]
    pub(crate) fn named(name: &str) -> Self {
        Self { name: name.to_owned(), executable: PathBuf::new(), folder: PathBuf::new() }
    }

    /// Returns the name by which `cargo xtask test` finds a test of this program.
    pub(crate) fn full_name(&self, test: &str) -> String {
        let separator = if self.name.contains('/') { "::" } else { "/" };
        format!("{}{separator}{test}", self.name)
    }
}

/// Builds all test programs of the workspace.
///
/// # Errors
/// When something does not compile; the compiler's words are in the log.
pub(crate) fn build(log: &Log) -> Result<Vec<TestProgram>> {
    let mut cargo = workspace::cargo();
    cargo.args(["test", "--workspace", "--no-run", "--message-format=json-render-diagnostics"]);
    log.redirect_output(&mut cargo)?;
    let output = cargo.stdout(Stdio::piped()).spawn()?.wait_with_output()?;
    if !output.status.success() {
        return Err("a test does not compile".into());
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    let mut programs: Vec<TestProgram> = messages
        .lines()
        .filter_map(|line| test_program(&serde_json::from_str(line).ok()?))
        .collect();
    programs.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(programs)
}

/// The name of a package's one program of tests, whose modules the tests' names begin with.
const ONE_PROGRAM: &str = "it";

fn test_program(message: &Value) -> Option<TestProgram> {
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
    let package = folder.file_name()?.to_string_lossy().into_owned();
    let target = message["target"]["name"].as_str()?;
    let executable = message["executable"].as_str()?.into();
    let name = if target == ONE_PROGRAM { package } else { format!("{package}/{target}") };
    Some(TestProgram { name, executable, folder })
}

/// Lists the tests of a program. Runs none.
///
/// # Errors
/// When the program does not say what it holds.
pub(crate) fn list(program: &TestProgram) -> Result<Vec<ListedTest>> {
    let names = names_in(&ask(program, &["--list", "--format=terse"])?);
    let ignored = names_in(&ask(program, &["--list", "--format=terse", "--ignored"])?);
    let mut tiers: BTreeMap<String, Option<u32>> = BTreeMap::new();
    if !ignored.is_empty() {
        let mut arguments = vec!["--exact"];
        arguments.extend(ignored.iter().map(String::as_str));
        let score = score(&ask(program, &arguments)?)
            .ok_or_else(|| format!("{} does not say why it ignores tests", program.name))?;
        tiers.extend(score.ignored.into_iter().map(|it| (it.test, tier_in(&it.reason))));
    }
    let tier = |name: &str| match ignored.iter().any(|it| it == name) {
        true => tiers.get(name).copied().flatten(),
        false => Some(0),
    };
    Ok(names.into_iter().map(|name| ListedTest { tier: tier(&name), name }).collect())
}

/// Returns what a program prints on standard output in the package's folder.
fn ask(program: &TestProgram, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new(&program.executable);
    command.args(arguments).current_dir(&program.folder);
    let output =
        command.env("CARGO_MANIFEST_DIR", &program.folder).stdin(Stdio::null()).output()?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("{} {}: {}", program.name, arguments[0], output.status).into()),
    }
}

/// Returns the names in what `--list --format=terse` prints.
fn names_in(list: &str) -> Vec<String> {
    list.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect()
}

/// Returns the number of the tier in the reason of an ignored test.
fn tier_in(reason: &str) -> Option<u32> {
    reason.strip_prefix("tier ")?.split_once(':')?.0.parse().ok()
}

/// Adds up what the runs of a test program, or of several, print about themselves.
///
/// `None` when there is no closing line: the program crashed, or is not made of tests.
pub(crate) fn score(text: &str) -> Option<Score> {
    let mut score = Score::default();
    let mut closed = false;
    // The names under the last heading of that kind; a test may print one, too.
    let mut failures: Vec<String> = Vec::new();
    for line in text.lines() {
        if line == "failures:" {
            failures.clear();
        } else if let Some(name) = line.strip_prefix("    ") {
            failures.push(name.to_owned());
        } else if let Some(counts) = line.strip_prefix("test result: ") {
            // ok. 3 passed; 0 failed; 1 ignored; ...
            let counts = counts.split_once(". ").map_or(counts, |(_, counts)| counts);
            let count = |what: &str| -> Option<usize> {
                counts.split("; ").find_map(|part| part.strip_suffix(what)?.trim().parse().ok())
            };
            score.passed += count("passed")?;
            let failed = count("failed")?;
            let mut names = failures.split_off(failures.len().saturating_sub(failed));
            // Failed all the same, should they ever be listed in another way.
            names.resize(failed, "a test without a name".to_owned());
            score.failures.append(&mut names);
            closed = true;
        } else if let Some((test, rest)) =
            line.strip_prefix("test ").and_then(|line| line.split_once(" ... ignored"))
        {
            let reason = rest.trim_start_matches([',', ' ']).to_owned();
            score.ignored.push(Ignored { test: test.to_owned(), reason });
        }
    }
    closed.then_some(score)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_score_is_what_the_closing_lines_say() {
        let text = "\
running 3 tests
test a ... ok
test b::c ... ignored, tier 1: namespaces
test d ... FAILED

failures:

---- d stdout ----
failures:
    none that it knows of

failures:
    d

test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s
    indented
test result: ok. 4 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out
";
        let ignored = vec![Ignored { test: "b::c".into(), reason: "tier 1: namespaces".into() }];
        assert_eq!(score(text), Some(Score { passed: 5, failures: vec!["d".into()], ignored }));
    }

    #[test]
    fn a_list_names_tests_and_no_benchmarks() {
        let list = "a::b: test\nfast: benchmark\nmoves: test\n\n2 tests, 1 benchmark\n";
        assert_eq!(names_in(list), ["a::b", "moves"]);
    }

    #[test]
    fn the_tier_is_the_number_that_begins_the_reason() {
        assert_eq!(tier_in("tier 2: needs qemu (cargo xtask test runs it)"), Some(2));
        assert_eq!(tier_in("slow"), None);
        assert_eq!(tier_in("tier two: needs qemu"), None);
    }

    #[test]
    fn the_tests_of_a_program_are_listed_with_their_tiers() {
        // A program that answers as libtest does, and fails if it is asked to run what is not
        // ignored.
        let folder = std::env::temp_dir().join(format!("roce-xtask-list-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let executable = folder.join("program");
        let script = "#!/bin/sh
case \"$*\" in
'--list --format=terse') printf 'a: test\\nb: test\\nc: test\\n' ;;
'--list --format=terse --ignored') printf 'b: test\\nc: test\\n' ;;
'--exact b c') printf 'test b ... ignored, tier 1: needs x\\ntest c ... ignored\\n'
    printf 'test result: ok. 0 passed; 0 failed; 2 ignored\\n' ;;
*) exit 1 ;;
esac
";
        fs::write(&executable, script).unwrap();
        fs::set_permissions(&executable, fs::Permissions::from_mode(0o755)).unwrap();
        let name = "package/program".to_owned();
        let program = TestProgram { name, executable, folder: folder.clone() };
        let listed = list(&program).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        let found: Vec<_> = listed.iter().map(|test| (test.name.as_str(), test.tier)).collect();
        assert_eq!(found, [("a", Some(0)), ("b", Some(1)), ("c", None)]);
        assert_eq!(program.full_name("b"), "package/program::b");
        let one = TestProgram { name: "package".to_owned(), ..program };
        assert_eq!(one.full_name("module::b"), "package/module::b");
    }

    #[test]
    fn what_failed_without_being_listed_failed_nevertheless() {
        let score = score("test result: FAILED. 1 passed; 2 failed; 0 ignored\n").unwrap();
        assert_eq!(score.failures.len(), 2);
    }

    #[test]
    fn a_program_that_crashed_has_no_score() {
        assert_eq!(score("running 3 tests\ntest a ... ok\n"), None);
    }
}
