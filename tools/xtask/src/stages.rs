//! The stages of a run: what passed, failed or was skipped, and how long it took.

use std::cell::RefCell;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::{Result, workspace};

/// The result of a stage that did not fail.
#[derive(Debug)]
pub(crate) enum StageResult {
    /// It did its work; the text says how much.
    Passed(String),
    /// It could not do its work on this machine; the text says why.
    Skipped(String),
}

/// Runs stages one after the other and keeps the score.
#[derive(Debug)]
pub(crate) struct Stages {
    started: Instant,
    skips_fail: bool,
    passed: u32,
    failed: Vec<&'static str>,
    skipped: Vec<String>,
}

impl Stages {
    /// With `skips_fail`, a stage that is skipped counts as failed.
    pub(crate) fn new(skips_fail: bool) -> Self {
        let (failed, skipped) = (Vec::new(), Vec::new());
        Self { started: Instant::now(), skips_fail, passed: 0, failed, skipped }
    }

    /// Runs one stage and prints a line on it. What it printed itself is in the log it is given;
    /// when it fails, that line says why, and what the log has to show for it follows.
    pub(crate) fn run(
        &mut self,
        name: &'static str,
        stage: impl FnOnce(&Log) -> Result<StageResult>,
    ) {
        let started = Instant::now();
        let outcome = Log::create(name).and_then(|log| match stage(&log) {
            Err(error) => Err(format!("{error}\n{}", log.explanation()).into()),
            done => done,
        });
        let took = started.elapsed().as_secs_f32();
        match outcome {
            Ok(StageResult::Passed(what)) => {
                println!("   ok {name} ({took:.1} s){}{what}", separator(&what));
                self.passed += 1;
            }
            Ok(StageResult::Skipped(why)) => {
                println!(" skip {name}: {why}");
                self.skipped.push(format!("{name} ({why})"));
                if self.skips_fail {
                    self.failed.push(name);
                }
            }
            Err(error) => {
                println!(" FAIL {name} ({took:.1} s): {error}");
                self.failed.push(name);
            }
        }
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
}

impl Log {
    fn create(stage: &str) -> Result<Self> {
        let folder = workspace::target().join("xtask");
        fs::create_dir_all(&folder)?;
        let path = folder.join(format!("{}.log", stage.replace([' ', ':'], "-")));
        let file = File::create(&path)?;
        Ok(Self { path, file, excerpts: RefCell::default() })
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
