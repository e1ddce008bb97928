//! `cargo xtask test`: everything a change is judged by, in stages.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use clap::Args;
use roce_guest::Image;

use crate::binaries::{self, Score, TestProgram};
use crate::stages::{Log, StageResult, Stages};
use crate::{Result, book, cost, dropin, fuzz, host, interop, layers, workspace};

/// What `cargo xtask test` takes.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Count what has to be skipped on this machine as failed.
    #[arg(long)]
    no_skip: bool,
    /// Run only the stages whose name contains this, such as `tier 1`.
    #[arg(long)]
    only: Option<String>,
}

/// The tests that one tier has in each program.
type Tier = Vec<(TestProgram, Vec<String>)>;

/// Runs the stages.
///
/// # Errors
/// When one failed, with the names of those that did.
pub(crate) fn run(options: &Options) -> Result<()> {
    let mut stages = Stages::new(options.no_skip);
    let wanted = |name: &str| options.only.as_ref().is_none_or(|only| name.contains(only.as_str()));

    if wanted("format") {
        stages.run("format", |log| {
            log.run(workspace::cargo().args(["fmt", "--all", "--check"]))?;
            log.run(workspace::cargo().args(["fmt", "--check", "--manifest-path", FUZZ_MANIFEST]))?;
            passed("")
        });
    }
    if wanted("clippy") {
        stages.run("clippy", |log| {
            let arguments = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
            log.run(workspace::cargo().args(arguments))?;
            passed("")
        });
    }
    if wanted("documentation") {
        stages.run("documentation", |log| {
            let mut cargo = workspace::cargo();
            log.run(
                cargo.args(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-Dwarnings"),
            )?;
            passed("")
        });
    }
    if wanted("layers") {
        stages.run("layers", |_| layers::check().map(StageResult::Passed));
    }

    // What belongs to which tier is learnt from running tier 0.
    let mut tiers = BTreeMap::new();
    if ["tier 0", "tier 1", "tier 2"].into_iter().any(wanted) {
        stages.run("tier 0", |log| {
            let programs = binaries::build(log)?;
            tier_0(&programs, log, &mut tiers)
        });
    }
    if wanted("tier 0") {
        stages.run("tier 0 documentation examples", documentation_examples);
    }
    if wanted("tier 1") {
        let missing = match namespaces_missing() {
            Some(why) => Some(why),
            None => host::install_network_tools().err().map(|why| why.to_string()),
        };
        stages.run("tier 1", |log| match &missing {
            Some(why) => Ok(StageResult::Skipped(why.clone())),
            None => run_tier(tiers.get("tier 1"), log),
        });
        stages.run("tier 1 programs", |log| match &missing {
            Some(why) => Ok(StageResult::Skipped(why.clone())),
            None => dropin::stage(log, &["--no-guest"]),
        });
    }
    if wanted("tier 2") {
        let tools = host::install_guest_tools().and_then(|()| match namespaces_missing() {
            Some(why) => Err(why.into()),
            None => host::check_tap_access(),
        });
        let mut missing = tools.err().map(|why| why.to_string());
        // The image is built by this user on this machine's network; the tests find it ready.
        stages.run("tier 2 guest", |_| match &missing {
            Some(why) => Ok(StageResult::Skipped(why.clone())),
            None => match Image::prepare(&workspace::target().join("guest")) {
                Ok(image) => Ok(StageResult::Passed(image.kernel_release().to_owned())),
                Err(error) => {
                    missing = Some("there is no guest".to_owned());
                    Err(error.into())
                }
            },
        });
        stages.run("tier 2", |log| match &missing {
            Some(why) => Ok(StageResult::Skipped(why.clone())),
            None => run_tier(tiers.get("tier 2"), log),
        });
        stages.run("tier 2 interop", |log| match &missing {
            Some(why) => Ok(StageResult::Skipped(why.clone())),
            None => interop::stage(log),
        });
        stages.run("tier 2 programs", |log| match &missing {
            Some(why) => Ok(StageResult::Skipped(why.clone())),
            None => dropin::stage(log, &["--only", "rxe"]),
        });
    }
    if wanted("cost") {
        stages.run("cost", cost::stage);
    }
    if wanted("book") {
        stages.run("book", book::stage);
    }
    if wanted("fuzz") {
        stages.run("fuzz", |log| fuzz::stage(log, FUZZING_TIME));
    }
    stages.finish()
}

fn passed(what: &str) -> Result<StageResult> {
    Ok(StageResult::Passed(what.to_owned()))
}

fn tier_0(
    programs: &[TestProgram],
    log: &Log,
    tiers: &mut BTreeMap<String, Tier>,
) -> Result<StageResult> {
    let (mut total, mut faults) = (0, Vec::new());
    for program in programs {
        let score = match binaries::run(program, &[], false, PROGRAM_LIMIT, log) {
            Ok(score) => score,
            Err(fault) => {
                faults.push(fault.to_string());
                continue;
            }
        };
        total += score.passed;
        note_failures(program, &score, &mut faults);
        let mut by_tier: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for ignored in score.ignored {
            match ignored.reason.split_once(':') {
                Some((tier, _)) if tier.starts_with("tier ") => {
                    by_tier.entry(tier.to_owned()).or_default().push(ignored.test);
                }
                _ => faults.push(format!(
                    "{}: {} is ignored and does not say `tier N: what it needs`",
                    program.name, ignored.test
                )),
            }
        }
        for (tier, tests) in by_tier {
            tiers.entry(tier).or_default().push((program.clone(), tests));
        }
    }
    conclude(total, faults)
}

fn run_tier(tier: Option<&Tier>, log: &Log) -> Result<StageResult> {
    let (mut total, mut faults) = (0, Vec::new());
    for (program, tests) in tier.into_iter().flatten() {
        // One at a time: these tests start programs of their own and look at the clock.
        let mut arguments = vec!["--ignored", "--exact", "--test-threads=1"];
        arguments.extend(tests.iter().map(String::as_str));
        match binaries::run(program, &arguments, true, PROGRAM_LIMIT, log) {
            Ok(score) => {
                total += score.passed;
                note_failures(program, &score, &mut faults);
            }
            Err(fault) => faults.push(fault.to_string()),
        }
    }
    conclude(total, faults)
}

fn note_failures(program: &TestProgram, score: &Score, faults: &mut Vec<String>) {
    if !score.failures.is_empty() {
        faults.push(format!("{}: {} failed", program.name, score.failures.join(", ")));
    }
}

fn conclude(total: usize, faults: Vec<String>) -> Result<StageResult> {
    if total == 0 && faults.is_empty() {
        return Err("there is not a single test here".into());
    }
    if faults.is_empty() {
        return Ok(StageResult::Passed(format!("{total} tests")));
    }
    Err(faults.join("; ").into())
}

fn documentation_examples(log: &Log) -> Result<StageResult> {
    log.run(workspace::cargo().args(["test", "--workspace", "--doc"]))?;
    let text = std::fs::read_to_string(log.path())?;
    let total = binaries::score(&text).map_or(0, |score| score.passed);
    Ok(StageResult::Passed(format!("{total} examples")))
}

/// Why this machine has no network namespaces for us, if it has none.
fn namespaces_missing() -> Option<String> {
    let tried = Command::new(workspace::OURSELVES).args(["in-namespace", "--", "true"]).output();
    match tried {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Some(error.to_string()),
    }
}

const FUZZ_MANIFEST: &str = "fuzz/Cargo.toml";

/// Longer than any program of tests may take, on a slow machine.
const PROGRAM_LIMIT: Duration = Duration::from_secs(600);

/// For each fuzz target.
const FUZZING_TIME: Duration = Duration::from_secs(30);
