//! A test in a process of its own, or a program of tests.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::binaries::{Score, TestProgram, score};
use crate::{Result, stacks, workspace};

/// What is run: some tests of a program.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) program: TestProgram,
    /// For libtest.
    pub(crate) arguments: Vec<String>,
    /// It runs as root of a user namespace where this process is not root already.
    pub(crate) in_namespace: bool,
    pub(crate) limit: Duration,
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
    /// Runs it to its end. `output` is a file that nothing else uses meanwhile.
    pub(crate) fn run(self, output: PathBuf) -> Ended {
        let started = Instant::now();
        let (text, outcome) = match self.outcome(&output) {
            Ok((text, outcome)) => (text, outcome),
            Err(error) => (String::new(), Err(error.to_string())),
        };
        Ended { job: self, text, took: started.elapsed(), outcome }
    }

    fn outcome(&self, output: &Path) -> Result<(String, std::result::Result<Score, String>)> {
        let mut command = if self.in_namespace {
            let mut ourselves = Command::new(workspace::OURSELVES);
            ourselves.arg("in-namespace").arg("--").arg(&self.program.executable);
            ourselves
        } else {
            Command::new(&self.program.executable)
        };
        let file = File::create(output)?;
        command.args(&self.arguments).current_dir(&self.program.folder);
        command.env("CARGO_MANIFEST_DIR", &self.program.folder);
        command.env(INSTALLATION, workspace::target().join("debug"));
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let stacks = wait(&mut command, self.limit)?;
        let mut text = String::from_utf8_lossy(&fs::read(output)?).into_owned();
        fs::remove_file(output)?;
        let (name, limit) = (&self.program.name, self.limit);
        let outcome = match (&stacks, score(&text)) {
            (Some(_), _) => Err(format!("{name} did not end within {limit:?} and was killed")),
            (None, Some(score)) => Ok(score),
            (None, None) => Err(format!("{name} ended without saying how its tests went")),
        };
        text.extend(stacks);
        Ok((text, outcome))
    }
}

/// Where tests find programs and libraries that are built already: see `tests/src/verbs_program.rs`.
const INSTALLATION: &str = "ROCE_TEST_INSTALLATION";

/// Waits for a program. If it took too long, it was killed, and the stacks of its processes are returned.
fn wait(command: &mut Command, limit: Duration) -> Result<Option<String>> {
    let deadline = Instant::now() + limit;
    let mut child = command.spawn()?;
    while child.try_wait()?.is_none() {
        if Instant::now() > deadline {
            let stacks = stacks::take_and_kill(child.id());
            child.wait()?;
            return Ok(Some(stacks));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(None)
}
