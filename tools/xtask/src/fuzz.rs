//! Runs the fuzz targets for a while each, two at a time.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use clap::Args;

use crate::stages::{Done, Log, Stages};
use crate::{Result, machine, workspace};

/// What `cargo xtask fuzz` takes.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Seconds for each target.
    #[arg(long, default_value_t = 30)]
    seconds: u64,
}

/// Fuzzes for people.
///
/// # Errors
/// When a target found something, or cannot be built.
pub(crate) fn run(options: &Options) -> Result<()> {
    let mut stages = Stages::new(true);
    stages.run("fuzz", |log| stage(log, Duration::from_secs(options.seconds)));
    stages.finish()
}

/// Builds the targets and runs each for `time`.
///
/// # Errors
/// When a target found something: the log holds the input and the command that repeats it.
pub(crate) fn stage(log: &Log, time: Duration) -> Result<Done> {
    if let Err(why) = machine::get_fuzzing_tools().and_then(|()| get_cargo_fuzz(log)) {
        return Ok(Done::Skipped(why.to_string()));
    }
    let list = cargo_fuzz().args(["list"]).output()?;
    let targets: Vec<String> =
        String::from_utf8_lossy(&list.stdout).lines().map(str::to_owned).collect();
    if targets.is_empty() {
        return Err(format!("no targets: {}", String::from_utf8_lossy(&list.stderr)).into());
    }
    log.run(cargo_fuzz().arg("build"))?;
    let mut faults = Vec::new();
    for pair in targets.chunks(2) {
        let running: Vec<(&String, PathBuf, Child)> = pair
            .iter()
            .map(|target| {
                let (path, child) = start(target, time, log)?;
                Ok((target, path, child))
            })
            .collect::<Result<_>>()?;
        for (target, output, mut child) in running {
            let status = child.wait()?;
            log.write(&format!("=== {target}: {status}\n{}\n", end_of(&output)))?;
            if !status.success() {
                faults.push(format!("{target} found something"));
            }
        }
    }
    if faults.is_empty() {
        return Ok(Done::Passed(format!("{} targets, {} s each", targets.len(), time.as_secs())));
    }
    Err(faults.join("; ").into())
}

/// Starts a target; returns where it prints.
fn start(target: &str, time: Duration, log: &Log) -> Result<(PathBuf, Child)> {
    let output = log.path().with_extension(format!("{target}.log"));
    let file = std::fs::File::create(&output)?;
    // New finds go to a scratch folder; the committed corpus is read only.
    let finds = workspace::target().join("fuzz-corpus").join(target);
    std::fs::create_dir_all(&finds)?;
    let mut cargo = cargo_fuzz();
    cargo.args(["run", target]).arg(finds);
    let corpus = workspace::root().join("fuzz/corpus").join(target);
    if corpus.is_dir() {
        cargo.arg(corpus);
    }
    cargo.arg("--").arg(format!("-max_total_time={}", time.as_secs()));
    cargo.args(["-timeout=10", "-rss_limit_mb=2048", "-print_final_stats=1"]);
    let child = cargo.stdin(std::process::Stdio::null()).stdout(file.try_clone()?).stderr(file);
    Ok((output, child.spawn()?))
}

/// cargo-fuzz wants unstable compiler flags, which the stable compiler allows under this name.
fn cargo_fuzz() -> Command {
    let mut cargo = workspace::cargo();
    cargo.current_dir(workspace::root().join("fuzz")).arg("fuzz").env("RUSTC_BOOTSTRAP", "1");
    cargo
}

fn get_cargo_fuzz(log: &Log) -> Result<()> {
    if cargo_fuzz().arg("--version").output().is_ok_and(|output| output.status.success()) {
        return Ok(());
    }
    println!("   installing: cargo-fuzz");
    log.run(workspace::cargo().args(["install", "cargo-fuzz", "--locked"]))
        .map_err(|_| "run: cargo install cargo-fuzz --locked".into())
}

fn end_of(path: &Path) -> String {
    let text = std::fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().rev().take(50).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("\n")
}
