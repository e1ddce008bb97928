//! Runs the fuzz targets for a while each, two at a time, and keeps what they found.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use clap::Args;

use crate::stages::{Log, StageResult, Stages};
use crate::{Result, host, workspace};

/// What `cargo xtask fuzz` takes.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Seconds for each target.
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// Only targets whose name contains this.
    #[arg(long)]
    only: Option<String>,
    /// Afterwards write the fewest inputs that reach as much into the committed corpora, as
    /// `kept_*`; with `--seconds 0` without fuzzing before.
    #[arg(long)]
    keep: bool,
}

/// Fuzzes for people.
///
/// # Errors
/// When a target found something, or cannot be built.
pub(crate) fn run(options: &Options) -> Result<()> {
    let mut stages = Stages::new(true, |stage| match stage {
        "keep" => "cargo xtask fuzz --seconds 0 --keep".to_owned(),
        _ => "cargo xtask fuzz".to_owned(),
    });
    let only = options.only.as_deref().unwrap_or_default();
    if options.seconds > 0 {
        stages.run("fuzz", |log| fuzz(log, Duration::from_secs(options.seconds), only));
    }
    if options.keep {
        stages.run("keep", |log| keep(log, only));
    }
    stages.finish()
}

/// Builds the targets and runs each for `time`.
///
/// # Errors
/// When a target found something: the log holds the input and the command that repeats it.
pub(crate) fn stage(log: &Log, time: Duration) -> Result<StageResult> {
    fuzz(log, time, "")
}

fn fuzz(log: &Log, time: Duration, only: &str) -> Result<StageResult> {
    if let Err(why) = get_tools(log) {
        return Ok(StageResult::Skipped(why.to_string()));
    }
    let targets = targets(only)?;
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
            let end = end_of(&output);
            log.write(&format!("=== {target}: {status}\n{end}\n"))?;
            if !status.success() {
                faults.push(format!("{target} found something"));
                log.add_repeat(repeat(target, &end));
            }
        }
    }
    if faults.is_empty() {
        return Ok(StageResult::Passed(format!(
            "{} targets, {} s each",
            targets.len(),
            time.as_secs()
        )));
    }
    Err(faults.join("; ").into())
}

/// Returns the command that runs a target on what it failed with, which cargo-fuzz has printed; or
/// the one that fuzzes it again.
fn repeat(target: &str, printed: &str) -> String {
    let command = printed.lines().map(str::trim).find(|line| line.starts_with("cargo fuzz run"));
    match command {
        Some(command) => format!("(cd fuzz && RUSTC_BOOTSTRAP=1 {command})"),
        None => format!("cargo xtask fuzz --only {target}"),
    }
}

/// Starts a target; returns where it prints.
fn start(target: &str, time: Duration, log: &Log) -> Result<(PathBuf, Child)> {
    let output = log.path().with_extension(format!("{target}.log"));
    let file = fs::File::create(&output)?;
    let mut cargo = cargo_fuzz();
    // New finds go to a scratch folder; the archive stays as it is.
    cargo.args(["run", target]).arg(finds(target)?).args(committed(target)?);
    cargo.arg("--").arg(format!("-max_total_time={}", time.as_secs()));
    cargo.args(["-timeout=20", "-rss_limit_mb=2048", "-print_final_stats=1", LEN_CONTROL]);
    let child = cargo.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    Ok((output, child.spawn()?))
}

/// Replaces what was kept before by the fewest inputs that reach as much as all that were
/// found.
fn keep(log: &Log, only: &str) -> Result<StageResult> {
    get_tools(log)?;
    let mut kept = Vec::new();
    for target in targets(only)? {
        let fewest = workspace::target().join("fuzz-kept").join(&target);
        workspace::remove_folder(&fewest)?;
        fs::create_dir_all(&fewest)?;
        let mut cargo = cargo_fuzz();
        cargo.args(["run", &target]).args([&fewest, &finds(&target)?]).args(committed(&target)?);
        // By lines reached alone: how often each is reached makes a corpus five times larger.
        cargo.args(["--", "-set_cover_merge=1", "-use_counters=0", "-timeout=60"]);
        log.run(&mut cargo)?;
        let mut inputs = roce_fuzz_support::read_corpus(&target)?;
        inputs.retain(|name, _| name.starts_with(SEED));
        // The shortest first, so that what is left out for its size is the least.
        let mut files: Vec<(u64, PathBuf)> = files_in(&fewest)?
            .into_iter()
            .map(|file| Ok((fs::metadata(&file)?.len(), file)))
            .collect::<Result<_>>()?;
        files.sort();
        let mut bytes: u64 = inputs.values().map(|input| input.len() as u64).sum();
        for (len, file) in files {
            let contents = fs::read(&file)?;
            let is_known = inputs.values().any(|input| *input == contents);
            if is_known || inputs.len() == MAX_FILES || bytes + len > MAX_BYTES {
                continue;
            }
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            // The first of the digits tell them apart.
            let name: String = name.chars().take(12).collect();
            inputs.insert(format!("{KEPT}{name}"), contents);
            bytes += len;
        }
        roce_fuzz_support::write_corpus(&target, &inputs)?;
        kept.push(format!("{target} {} inputs, {} KiB", inputs.len(), bytes.div_ceil(1024)));
    }
    Ok(StageResult::Passed(kept.join("; ")))
}

fn files_in(folder: &Path) -> Result<Vec<PathBuf>> {
    fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect()
}

/// The targets whose name contains `only`.
fn targets(only: &str) -> Result<Vec<String>> {
    let list = cargo_fuzz().args(["list"]).output()?;
    let names = String::from_utf8_lossy(&list.stdout);
    let targets: Vec<String> =
        names.lines().filter(|name| name.contains(only)).map(str::to_owned).collect();
    if targets.is_empty() {
        return Err(format!("no such target: {}", String::from_utf8_lossy(&list.stderr)).into());
    }
    Ok(targets)
}

/// Unpacks the committed inputs of a target; returns the folders that hold them.
fn committed(target: &str) -> Result<Vec<PathBuf>> {
    let folder = workspace::target().join("fuzz-committed").join(target);
    workspace::remove_folder(&folder)?;
    fs::create_dir_all(&folder)?;
    for (name, bytes) in roce_fuzz_support::read_corpus(target)? {
        fs::write(folder.join(name), bytes)?;
    }
    let mut folders = vec![folder];
    // Inputs that a person has put beside the archive.
    let loose = workspace::root().join("fuzz/corpus").join(target);
    folders.extend(Some(loose).filter(|folder| folder.is_dir()));
    if target == "capture_file" {
        folders.push(workspace::root().join("testdata"));
    }
    Ok(folders)
}

/// Where inputs are put that were found on this machine.
fn finds(target: &str) -> Result<PathBuf> {
    let folder = workspace::target().join("fuzz-corpus").join(target);
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

fn get_tools(log: &Log) -> Result<()> {
    host::install_missing(host::FUZZING_TOOLS)?;
    if cargo_fuzz().arg("--version").output().is_ok_and(|output| output.status.success()) {
        return Ok(());
    }
    println!("   installing: cargo-fuzz");
    log.run(workspace::cargo().args(["install", "cargo-fuzz", "--locked"]))
        .map_err(|_| "run: cargo install cargo-fuzz --locked".into())
}

/// cargo-fuzz wants unstable compiler flags, which the stable compiler allows under this name.
fn cargo_fuzz() -> Command {
    let mut cargo = workspace::cargo();
    cargo.current_dir(workspace::root().join("fuzz")).arg("fuzz").env("RUSTC_BOOTSTRAP", "1");
    cargo
}

fn end_of(path: &Path) -> String {
    let text = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().rev().take(50).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("\n")
}

/// Inputs grow sooner than libFuzzer would let them: a short script does little.
const LEN_CONTROL: &str = "-len_control=20";

/// What committed inputs are called: those that tests make, and those that were found and are
/// kept, with a digest behind it.
const SEED: &str = "seed_";
const KEPT: &str = "kept_";
/// A committed corpus has no more inputs, seeds among them, and no more bytes.
const MAX_FILES: usize = 199;
const MAX_BYTES: u64 = 900 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_find_is_repeated_with_its_input() {
        let printed = "\
Reproduce with:

\tcargo fuzz run responder artifacts/responder/crash-0f

Minimize test case with:

\tcargo fuzz tmin responder artifacts/responder/crash-0f
";
        let command = "cargo fuzz run responder artifacts/responder/crash-0f";
        let expected = format!("(cd fuzz && RUSTC_BOOTSTRAP=1 {command})");
        assert_eq!(repeat("responder", printed), expected);
        assert_eq!(repeat("responder", "killed"), "cargo xtask fuzz --only responder");
    }
}
