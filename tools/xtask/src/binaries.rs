//! The workspace's test programs: built once, run by tier.
//!
//! A test that needs more than `cargo test` offers is marked `#[tier1]` or `#[tier2]`
//! (`tests/macros`), which libtest ignores with a reason. Tier 0 runs all programs without such
//! tests and notes, from the reasons that they print, which tests belong to which tier.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::stages::{Log, last_lines};
use crate::{Result, workspace};

/// A program made of tests.
#[derive(Clone, Debug)]
pub(crate) struct TestProgram {
    /// Package and target, for people.
    pub(crate) name: String,
    executable: PathBuf,
    /// The package's folder: tests run there, as under cargo.
    folder: PathBuf,
}

/// Tests of one program that are ignored for a reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ignored {
    /// The test.
    pub(crate) test: String,
    /// The reason it gives; empty where it gives none.
    pub(crate) reason: String,
}

/// How a program's tests went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Score {
    pub(crate) passed: usize,
    /// The names of those that failed.
    pub(crate) failures: Vec<String>,
    pub(crate) ignored: Vec<Ignored>,
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

fn test_program(message: &Value) -> Option<TestProgram> {
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
    let package = folder.file_name()?.to_string_lossy().into_owned();
    let target = message["target"]["name"].as_str()?;
    let executable = message["executable"].as_str()?.into();
    Some(TestProgram { name: format!("{package}/{target}"), executable, folder })
}

/// Runs a program of tests to its end, printing into the log.
///
/// With `in_namespace` it runs as root of a user namespace where it is not root already.
///
/// # Errors
/// When it had to be killed after `limit`, or ended without saying how its tests went.
pub(crate) fn run(
    program: &TestProgram,
    arguments: &[&str],
    in_namespace: bool,
    limit: Duration,
    log: &Log,
) -> Result<Score> {
    let mut command = if in_namespace {
        let mut ourselves = Command::new(workspace::OURSELVES);
        ourselves.arg("in-namespace").arg("--").arg(&program.executable);
        ourselves
    } else {
        Command::new(&program.executable)
    };
    let output = log.path().with_extension("part");
    let file = File::create(&output)?;
    command.args(arguments).current_dir(&program.folder);
    command.env("CARGO_MANIFEST_DIR", &program.folder);
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    let ended = wait(&mut command, limit);
    let text = String::from_utf8_lossy(&fs::read(&output)?).into_owned();
    log.write(&format!("=== {} {}\n{text}\n", program.name, arguments.join(" ")))?;
    fs::remove_file(&output)?;
    let score = score(&text);
    match &score {
        Some(score) if score.failures.is_empty() => {}
        // What libtest shows of the tests that failed begins with this line, and each with why.
        Some(_) => log.add_excerpt(text.find("\nfailures:\n").map_or(&text, |at| &text[at + 1..])),
        None => log.add_excerpt(last_lines(&text)),
    }
    if !ended? {
        return Err(format!("{} did not end within {limit:?} and was killed", program.name).into());
    }
    score.ok_or_else(|| format!("{} ended without saying how its tests went", program.name).into())
}

/// Waits for a program; false when it took too long and was killed.
fn wait(command: &mut Command, limit: Duration) -> Result<bool> {
    let deadline = Instant::now() + limit;
    let mut child = command.spawn()?;
    while child.try_wait()?.is_none() {
        if Instant::now() > deadline {
            child.kill()?;
            child.wait()?;
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(true)
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
    fn what_failed_without_being_listed_failed_nevertheless() {
        let score = score("test result: FAILED. 1 passed; 2 failed; 0 ignored\n").unwrap();
        assert_eq!(score.failures.len(), 2);
    }

    #[test]
    fn a_program_that_crashed_has_no_score() {
        assert_eq!(score("running 3 tests\ntest a ... ok\n"), None);
    }
}
