//! A test in a process of its own, or a program of tests.

use std::process::Command;
use std::time::{Duration, Instant};

use roce_netns::process::Launch;

use crate::binaries::{Score, TestProgram, score};
use crate::{Result, stacks, workspace};

/// What is run: tests of one program, all of one tier.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) program: TestProgram,
    /// Their names within the program.
    pub(crate) tests: Vec<String>,
    /// From tier 1 on they run as root of a user namespace where this process is not root already.
    pub(crate) tier: u32,
}

/// How it went.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) job: Job,
    /// What it printed, and the stacks of its processes if they had to be killed.
    pub(crate) text: String,
    pub(crate) took: Duration,
    pub(crate) outcome: std::result::Result<Score, String>,
}

impl Job {
    /// The name by which `cargo xtask test` finds it: a test's, or that of a whole program.
    pub(crate) fn full_name(&self) -> String {
        match &self.tests[..] {
            [test] => self.program.full_name(test),
            _ => self.program.full_name(""),
        }
    }

    /// Runs it to its end.
    pub(crate) fn run(self) -> Ended {
        let started = Instant::now();
        let (text, outcome) = match self.outcome() {
            Ok((text, outcome)) => (text, outcome),
            Err(error) => (String::new(), Err(error.to_string())),
        };
        Ended { job: self, text, took: started.elapsed(), outcome }
    }

    fn outcome(&self) -> Result<(String, std::result::Result<Score, String>)> {
        let mut command = if self.tier > 0 {
            let mut ourselves = Command::new(workspace::OURSELVES);
            ourselves.arg("in-namespace").arg("--").arg(&self.program.executable).arg("--ignored");
            ourselves
        } else {
            Command::new(&self.program.executable)
        };
        command.arg("--exact").args(&self.tests).current_dir(&self.program.folder);
        command.env("CARGO_MANIFEST_DIR", &self.program.folder);
        command.env(INSTALLATION, workspace::target().join("debug"));
        let running = Launch::from(command).join_stderr().grace(Duration::ZERO).start()?;
        let stacks = match running.wait_for_exit(LIMIT) {
            Some(_) => None,
            None => Some(stacks::take_and_kill(running.id())),
        };
        let mut text = running.end()?.stdout;
        let name = &self.program.name;
        let outcome = match (&stacks, score(&text)) {
            (Some(_), _) => Err(format!("{name} did not end within {LIMIT:?} and was killed")),
            (None, Some(score)) => self.checked(score),
            (None, None) => Err(format!("{name} ended without saying how its tests went")),
        };
        text.extend(stacks);
        Ok((text, outcome))
    }

    /// A program that is asked for a test that it does not have runs none and succeeds.
    fn checked(&self, score: Score) -> std::result::Result<Score, String> {
        let (ran, wanted) = (score.passed + score.failures.len(), self.tests.len());
        match ran == wanted {
            true => Ok(score),
            false => Err(format!("{} ran {ran} tests instead of {wanted}", self.program.name)),
        }
    }
}

/// Longer than any test, or program of tests of tier 0, may take on a slow machine.
const LIMIT: Duration = Duration::from_secs(600);

/// Where tests find programs and libraries that are built already: see `tests/src/verbs_program.rs`.
const INSTALLATION: &str = "ROCE_TEST_INSTALLATION";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_that_did_not_run_did_not_pass() {
        let tests = ["a", "b"].map(str::to_owned).to_vec();
        let job = Job { program: TestProgram::named("package/program"), tests, tier: 1 };
        let passed =
            |count| score(&format!("test result: ok. {count} passed; 0 failed\n")).unwrap();
        assert_eq!(job.checked(passed(2)), Ok(passed(2)));
        let fault = job.checked(passed(1)).unwrap_err();
        assert_eq!(fault, "package/program ran 1 tests instead of 2");
    }

    #[test]
    fn one_test_is_repeated_alone_and_several_by_their_program() {
        let job = |tests: &[&str]| {
            let tests = tests.iter().map(|&test| test.to_owned()).collect();
            Job { program: TestProgram::named("package"), tests, tier: 0 }
        };
        assert_eq!(job(&["module::a"]).full_name(), "package/module::a");
        assert_eq!(job(&["module::a", "module::b"]).full_name(), "package/");
    }
}
