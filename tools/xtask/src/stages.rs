//! The stages of a run: what passed, failed or was skipped, and how long it took.

mod graph;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::{Result, workspace};

pub(crate) use graph::{Beside, Stage};

/// The result of a stage that did not fail.
#[derive(Debug)]
pub(crate) enum StageResult {
    /// It did its work; the text says how much.
    Passed(String),
    /// It could not do its work on this machine; the text says why.
    Skipped(String),
}

/// How a stage went.
#[derive(Debug)]
enum Outcome {
    Passed(String),
    Skipped(String),
    /// Why, with what the log has to show for it and the commands that repeat it.
    Failed(String),
}

/// Runs stages and keeps the score.
pub(crate) struct Stages {
    started: Instant,
    skips_fail: bool,
    /// Returns the command that runs one stage again.
    repeat: Arc<dyn Fn(&str) -> String + Send + Sync>,
    passed: u32,
    failed: Vec<&'static str>,
    skipped: Vec<String>,
    /// For each stage that has ended: why those that need it cannot run, if they cannot.
    ended: BTreeMap<&'static str, Option<String>>,
}

impl Stages {
    /// With `skips_fail`, a stage that is skipped counts as failed. `repeat` returns the command
    /// that runs the stage of a name again.
    pub(crate) fn new(
        skips_fail: bool,
        repeat: impl Fn(&str) -> String + Send + Sync + 'static,
    ) -> Self {
        Self {
            started: Instant::now(),
            skips_fail,
            repeat: Arc::new(repeat),
            passed: 0,
            failed: Vec::new(),
            skipped: Vec::new(),
            ended: BTreeMap::new(),
        }
    }

    /// Runs one stage and prints a line on it. What it printed itself is in the log it is given;
    /// when it fails, that line says why. What the log has to show for it follows, and then the
    /// commands that repeat the failure.
    pub(crate) fn run(
        &mut self,
        name: &'static str,
        stage: impl FnOnce(&Log) -> Result<StageResult>,
    ) {
        let started = Instant::now();
        let outcome = outcome(&*self.repeat, name, stage);
        self.add(name, started.elapsed(), outcome);
    }

    /// Prints a line on a stage that has ended, and counts it.
    fn add(&mut self, name: &'static str, took: Duration, outcome: Outcome) {
        let took = took.as_secs_f32();
        let hindrance = match outcome {
            Outcome::Passed(what) => {
                println!("   ok {name} ({took:.1} s){}{what}", separator(&what));
                self.passed += 1;
                None
            }
            Outcome::Skipped(why) => {
                println!(" skip {name}: {why}");
                self.skipped.push(format!("{name} ({why})"));
                if self.skips_fail {
                    self.failed.push(name);
                }
                Some(why)
            }
            Outcome::Failed(why) => {
                println!(" FAIL {name} ({took:.1} s): {why}");
                self.failed.push(name);
                Some(format!("{name} failed"))
            }
        };
        self.ended.insert(name, hindrance);
    }

    /// Prints the score.
    ///
    /// # Errors
    /// When a stage failed.
    pub(crate) fn finish(self) -> Result<()> {
        println!("all stages took {:.0} s", self.started.elapsed().as_secs_f32());
        if !self.skipped.is_empty() {
            println!("skipped: {}", self.skipped.join("; "));
        }
        let skipped = if self.skips_fail { 0 } else { self.skipped.len() };
        let (passed, failed) = (self.passed, self.failed.len());
        match skipped {
            0 => println!("{passed} passed, {failed} failed"),
            _ => println!("{passed} passed, {failed} failed, {skipped} skipped"),
        }
        if self.failed.is_empty() {
            return Ok(());
        }
        let why = if self.skips_fail && !self.skipped.is_empty() {
            " (nothing may be skipped)"
        } else {
            ""
        };
        Err(format!("failed: {}{why}", self.failed.join(", ")).into())
    }
}

/// Runs a stage, with a log of its own.
fn outcome(
    repeat: &dyn Fn(&str) -> String,
    name: &str,
    stage: impl FnOnce(&Log) -> Result<StageResult>,
) -> Outcome {
    let log = match Log::create(name) {
        Ok(log) => log,
        Err(error) => return Outcome::Failed(error.to_string()),
    };
    match stage(&log) {
        Ok(StageResult::Passed(what)) => Outcome::Passed(what),
        Ok(StageResult::Skipped(why)) => Outcome::Skipped(why),
        Err(error) => {
            let repeats = log.repeats(|| repeat(name));
            Outcome::Failed(format!("{error}\n{}{repeats}", log.explanation()))
        }
    }
}

fn separator(what: &str) -> &'static str {
    if what.is_empty() { "" } else { ": " }
}

/// The file that takes what a stage's programs print.
#[derive(Debug)]
pub(crate) struct Log {
    path: PathBuf,
    file: File,
    /// Excerpts that explain a failure.
    excerpts: RefCell<String>,
    /// Commands that repeat what failed.
    repeats: RefCell<Vec<String>>,
}

impl Log {
    /// Creates the log of a stage.
    pub(crate) fn create(stage: &str) -> Result<Self> {
        let folder = workspace::target().join("xtask");
        fs::create_dir_all(&folder)?;
        let path = folder.join(format!("{}.log", stage.replace([' ', ':'], "-")));
        let file = File::create(&path)?;
        Ok(Self { path, file, excerpts: RefCell::default(), repeats: RefCell::default() })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Adds text.
    pub(crate) fn write(&self, text: &str) -> Result<()> {
        Ok((&self.file).write_all(text.as_bytes())?)
    }

    /// Lets a program print into the log.
    pub(crate) fn redirect_output<'a>(&self, command: &'a mut Command) -> Result<&'a mut Command> {
        let (out, err) = (self.file.try_clone()?, self.file.try_clone()?);
        Ok(command.stdin(Stdio::null()).stdout(out).stderr(err))
    }

    /// Runs a program, with what it prints going to the log.
    ///
    /// # Errors
    /// When it does not succeed.
    pub(crate) fn run(&self, command: &mut Command) -> Result<()> {
        let program = command.get_program().to_string_lossy().into_owned();
        let status = self
            .redirect_output(command)?
            .status()
            .map_err(|error| format!("start {program}: {error}"))?;
        if status.success() { Ok(()) } else { Err(format!("{program}: {status}").into()) }
    }

    /// Names a part of what was printed as the reason of a failure: of that the beginning is shown.
    /// Where nothing is named, it is the end of the log.
    pub(crate) fn add_excerpt(&self, part: &str) {
        let shown = part.lines().take(MAX_LINES_SHOWN).map(indented);
        self.excerpts.borrow_mut().extend(shown);
    }

    /// Notes a command that repeats a failure. A stage that notes none is repeated as a whole.
    pub(crate) fn add_repeat(&self, command: String) {
        self.repeats.borrow_mut().push(command);
    }

    fn repeats(&self, whole_stage: impl FnOnce() -> String) -> String {
        let mut commands = self.repeats.take();
        if commands.is_empty() {
            commands.push(whole_stage());
        }
        commands.iter().map(|command| format!("\n      repeat with: {command}")).collect()
    }

    fn explanation(&self) -> String {
        let mut shown = self.excerpts.take();
        if shown.is_empty() {
            let text = fs::read(&self.path).unwrap_or_default();
            shown = last_lines(&String::from_utf8_lossy(&text)).lines().map(indented).collect();
        }
        format!("{shown}      (all of it: {})", self.path.display())
    }
}

/// The end of a text that is too long to be shown.
pub(crate) fn last_lines(text: &str) -> &str {
    let cut = text.trim_end().rmatch_indices('\n').nth(MAX_LINES_SHOWN - 1);
    cut.map_or(text, |(at, _)| &text[at + 1..])
}

fn indented(line: &str) -> String {
    format!("      {line}\n")
}

const MAX_LINES_SHOWN: usize = 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_repeated_by_what_the_stage_noted_or_else_by_the_whole_stage() {
        let log = Log::create("test of repeats").unwrap();
        let whole = || "cargo xtask test --only 'tier 1'".to_owned();
        assert_eq!(log.repeats(whole), "\n      repeat with: cargo xtask test --only 'tier 1'");
        log.add_repeat("cargo xtask test 'tests/veth::a'".to_owned());
        log.add_repeat("cargo xtask test 'tests/veth::b'".to_owned());
        let noted = log.repeats(whole);
        assert!(noted.ends_with(
            "test 'tests/veth::a'\n      repeat with: cargo xtask test 'tests/veth::b'"
        ));
        assert_eq!(noted.lines().count(), 3, "{noted}");
        fs::remove_file(log.path()).unwrap();
    }
}
