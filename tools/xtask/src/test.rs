//! `cargo xtask test`: everything a change is judged by, in stages; or the tests of a name.

mod process;
mod schedule;

use std::process::Command;
use std::time::Duration;

use clap::Args;
use roce_guest::{Architecture, Image};

use crate::binaries::{self, ListedTest, TestProgram};
use crate::stages::{Log, StageResult, Stages, last_lines};
use crate::{Result, book, cost, dropin, fuzz, host, interop, layers, rules, stacks, workspace};

use process::{Ended, Job};

/// What `cargo xtask test` takes.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Run only the tests whose full name (`package/module::test`) contains this, of any tier; if
    /// it is the full name of one test, that one alone.
    #[arg(conflicts_with = "only")]
    name: Option<String>,
    /// Count what has to be skipped on this machine as failed; so it is with a name.
    #[arg(long)]
    no_skip: bool,
    /// Run only the stages whose name contains this, such as `tier 1`.
    #[arg(long)]
    only: Option<String>,
}

/// Tests of one program.
type Listed = (TestProgram, Vec<ListedTest>);

/// Runs the stages.
///
/// # Errors
/// When one failed, with the names of those that did.
pub(crate) fn run(options: &Options) -> Result<()> {
    match &options.name {
        Some(name) => run_named(name),
        None => run_stages(options),
    }
}

/// Runs the tests of a name with what their tiers need.
fn run_named(name: &str) -> Result<()> {
    let mut stages = Stages::new(true, {
        let command = format!("cargo xtask test '{name}'");
        move |_| command.clone()
    });
    let mut tests = Vec::new();
    stages.run(PROGRAMS, |log| {
        tests = named(name, list(log)?);
        match tests.iter().map(|(_, tests)| tests.len()).sum() {
            0 => Err(format!("no test has {name:?} in its full name").into()),
            1 => passed(&full_names(&tests)[0]),
            count => passed(&format!("{count} tests have {name:?} in their full name")),
        }
    });
    for (tier, stage) in [(0, "tier 0"), (1, "tier 1")] {
        if has_tier(&tests, tier) {
            let missing = if tier == 0 { None } else { missing_for_tier_1() };
            stages.run(stage, |log| match missing {
                Some(why) => Ok(StageResult::Skipped(why)),
                None => run_tier(&tests, tier, log),
            });
        }
    }
    if has_tier(&tests, 2) {
        let missing = prepare_guest(&mut stages);
        stages.run("tier 2", |log| match missing {
            Some(why) => Ok(StageResult::Skipped(why)),
            None => run_tier(&tests, 2, log),
        });
    }
    stages.finish()
}

fn run_stages(options: &Options) -> Result<()> {
    let mut stages = Stages::new(options.no_skip, |stage| {
        // `contains` finds a stage by its own name at least.
        format!("cargo xtask test --only '{stage}'")
    });
    let wanted = |name: &str| options.only.as_ref().is_none_or(|only| name.contains(only.as_str()));
    let any_wanted = |names: &[&str]| names.iter().any(|name| wanted(name));
    if !any_wanted(STAGES) {
        return Err(format!("no such stage; there are: {}", STAGES.join(", ")).into());
    }

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
    if wanted("rules") {
        stages.run("rules", |_| rules::check().map(StageResult::Passed));
    }

    let mut tests = Vec::new();
    if any_wanted(&[PROGRAMS, "tier 0", "tier 1", "tier 2"]) {
        stages.run(PROGRAMS, |log| {
            tests = list(log)?;
            let without_tier: Vec<String> = full_names(&with_tier(&tests, None));
            if !without_tier.is_empty() {
                let why = "ignored, and not with `tier N: what it needs`";
                return Err(format!("{why}: {}", without_tier.join(", ")).into());
            }
            passed(&format!("{} programs", tests.len()))
        });
    }
    if wanted("tier 0") {
        stages.run("tier 0", |log| run_tier(&tests, 0, log));
    }
    if wanted("tier 0 documentation examples") {
        stages.run("tier 0 documentation examples", documentation_examples);
    }
    if any_wanted(&["tier 1", "tier 1 programs"]) {
        let missing = missing_for_tier_1();
        if wanted("tier 1") {
            stages.run("tier 1", |log| match &missing {
                Some(why) => Ok(StageResult::Skipped(why.clone())),
                None => run_tier(&tests, 1, log),
            });
        }
        if wanted("tier 1 programs") {
            stages.run("tier 1 programs", |log| match &missing {
                Some(why) => Ok(StageResult::Skipped(why.clone())),
                None => dropin::stage(log, &["--no-guest"]),
            });
        }
    }
    if STAGES.iter().any(|name| name.starts_with("tier 2") && wanted(name)) {
        let missing = prepare_guest(&mut stages);
        if wanted("tier 2") {
            stages.run("tier 2", |log| match &missing {
                Some(why) => Ok(StageResult::Skipped(why.clone())),
                None => run_tier(&tests, 2, log),
            });
        }
        if wanted("tier 2 interop") {
            stages.run("tier 2 interop", |log| match &missing {
                Some(why) => Ok(StageResult::Skipped(why.clone())),
                None => interop::stage(log),
            });
        }
        if wanted("tier 2 sequences") {
            stages.run("tier 2 sequences", |log| match &missing {
                Some(why) => Ok(StageResult::Skipped(why.clone())),
                None => interop::sequences_stage(log),
            });
        }
        if wanted("tier 2 programs") {
            stages.run("tier 2 programs", |log| match &missing {
                Some(why) => Ok(StageResult::Skipped(why.clone())),
                None => dropin::stage(log, &["--only", "rxe"]),
            });
        }
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

/// Prepares the guest as a stage. Returns why tests of tier 2 cannot run, if they cannot.
fn prepare_guest(stages: &mut Stages) -> Option<String> {
    let tools =
        host::install_guest_tools(Architecture::X86_64).and_then(|()| match namespaces_missing() {
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
    missing
}

/// Returns why tests of tier 1 cannot run, if they cannot.
fn missing_for_tier_1() -> Option<String> {
    namespaces_missing()
        .or_else(|| host::install_missing(host::NETWORK_TOOLS).err().map(|why| why.to_string()))
}

/// Builds the test programs and lists their tests.
fn list(log: &Log) -> Result<Vec<Listed>> {
    let programs = binaries::build(log)?;
    let listed = programs.into_iter().map(|program| {
        let tests = binaries::list(&program)?;
        Ok((program, tests))
    });
    listed.collect()
}

/// Returns the tests whose full name contains `name`; the one alone whose full name it is.
fn named(name: &str, all: Vec<Listed>) -> Vec<Listed> {
    let is_full = all
        .iter()
        .any(|(program, tests)| tests.iter().any(|test| program.full_name(&test.name) == name));
    let matches = |full: String| if is_full { full == name } else { full.contains(name) };
    filtered(all, |program, test| matches(program.full_name(&test.name)))
}

fn with_tier(all: &[Listed], tier: Option<u32>) -> Vec<Listed> {
    filtered(all.to_vec(), |_, test| test.tier == tier)
}

fn has_tier(all: &[Listed], tier: u32) -> bool {
    !with_tier(all, Some(tier)).is_empty()
}

/// Returns the tests that `is_wanted` admits, without programs that have none of them.
fn filtered(
    all: Vec<Listed>,
    is_wanted: impl Fn(&TestProgram, &ListedTest) -> bool,
) -> Vec<Listed> {
    let kept = all.into_iter().map(|(program, mut tests)| {
        tests.retain(|test| is_wanted(&program, test));
        (program, tests)
    });
    kept.filter(|(_, tests)| !tests.is_empty()).collect()
}

fn full_names(listed: &[Listed]) -> Vec<String> {
    let names = listed
        .iter()
        .flat_map(|(program, tests)| tests.iter().map(|test| program.full_name(&test.name)));
    names.collect()
}

fn passed(what: &str) -> Result<StageResult> {
    Ok(StageResult::Passed(what.to_owned()))
}

/// Runs those of the tests that are of a tier: those of tier 0 with the others of their program, each of another
/// in a process of its own.
fn run_tier(all: &[Listed], tier: u32, log: &Log) -> Result<StageResult> {
    if tier > 0 {
        // Once, and not by each test that needs it.
        log.run(&mut workspace::build_for_tests())?;
    }
    let mut jobs = Vec::new();
    for (program, tests) in with_tier(all, Some(tier)) {
        let names: Vec<String> = tests.into_iter().map(|test| test.name).collect();
        let at_once = if tier == 0 { names.len() } else { 1 };
        jobs.extend(names.chunks(at_once).map(|tests| Job {
            program: program.clone(),
            tests: tests.to_vec(),
            tier,
        }));
    }
    let mut outcome = Outcome::default();
    let folder = log.path().parent().ok_or("a log without a folder")?;
    schedule::run_all(jobs, folder, |ended| outcome.add(ended, log));
    outcome.conclude()
}

/// How the tests of a stage went.
#[derive(Default)]
struct Outcome {
    passed: usize,
    faults: Vec<String>,
}

impl Outcome {
    /// Adds a program or a test that has ended, with what it printed to the log.
    fn add(&mut self, ended: Ended, log: &Log) {
        let Ended { job, text, took, outcome } = ended;
        let (program, name) = (&job.program, job.full_name());
        let heading = format!("=== {name} ({took:.2?})\n");
        // A log that cannot be written changes no result.
        let _written = log.write(&format!("{heading}{text}\n"));
        match outcome {
            Ok(score) => {
                self.passed += score.passed;
                if !score.failures.is_empty() {
                    // What libtest shows of the tests that failed begins with this line, and each with why.
                    let failures = text.find("\nfailures:\n");
                    log.add_excerpt(failures.map_or(&text, |at| &text[at + 1..]));
                    let names = score.failures.join(", ");
                    self.faults.push(format!("{}: {names} failed", program.name));
                }
                for test in score.failures {
                    log.add_repeat(format!("cargo xtask test '{}'", program.full_name(&test)));
                }
            }
            Err(fault) => {
                let (printed, stacks) =
                    text.split_at(text.find(stacks::HEADING).unwrap_or(text.len()));
                log.add_excerpt(last_lines(printed));
                log.add_excerpt(&stacks::short(stacks));
                self.faults.push(format!("{name}: {fault}"));
                log.add_repeat(format!("cargo xtask test '{name}'"));
            }
        }
    }

    fn conclude(self) -> Result<StageResult> {
        match (self.passed, self.faults.is_empty()) {
            (0, true) => Err("there is not a single test here".into()),
            (total, true) => passed(&format!("{total} tests")),
            (_, false) => Err(self.faults.join("; ").into()),
        }
    }
}

fn documentation_examples(log: &Log) -> Result<StageResult> {
    let ran = log.run(workspace::cargo().args(["test", "--workspace", "--doc", "--no-fail-fast"]));
    let text = std::fs::read_to_string(log.path())?;
    let score = binaries::score(&text).unwrap_or_default();
    for example in &score.failures {
        log.add_repeat(repeat_of_example(example));
    }
    ran?;
    passed(&format!("{} examples", score.passed))
}

/// Returns the command that runs the example again of which libtest prints this name:
/// `crates/roce-io/src/lib.rs - wire::Frame (line 7)`.
fn repeat_of_example(name: &str) -> String {
    let (file, item) = name.split_once(" - ").unwrap_or((name, ""));
    let folder = file.split("/src/").next().unwrap_or_default();
    let package = folder.rsplit('/').next().unwrap_or_default();
    let item = item.split(" (").next().unwrap_or_default();
    format!("cargo test --doc --package {package} '{item}'")
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

/// For each fuzz target.
const FUZZING_TIME: Duration = Duration::from_secs(15);

/// The stage that builds the test programs and lists their tests.
const PROGRAMS: &str = "test programs";

/// Names of all stages, in their order.
const STAGES: &[&str] = &[
    "format",
    "clippy",
    "documentation",
    "layers",
    "rules",
    PROGRAMS,
    "tier 0",
    "tier 0 documentation examples",
    "tier 1",
    "tier 1 programs",
    "tier 2 guest",
    "tier 2",
    "tier 2 interop",
    "tier 2 sequences",
    "tier 2 programs",
    "cost",
    "book",
    "fuzz",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(programs: &[(&str, &[(&str, u32)])]) -> Vec<Listed> {
        let listed = programs.iter().map(|(program, tests)| {
            let tests = tests
                .iter()
                .map(|(name, tier)| ListedTest { name: (*name).to_owned(), tier: Some(*tier) });
            (TestProgram::named(program), tests.collect())
        });
        listed.collect()
    }

    fn all() -> Vec<Listed> {
        listed(&[
            ("wire/wire", &[("psn::wraps", 0), ("psn::wraps_twice", 0)]),
            ("tests/veth", &[("wraps", 1), ("other", 1)]),
            ("tests/guest", &[("answers", 2)]),
        ])
    }

    #[test]
    fn a_name_selects_the_tests_of_any_tier_that_contain_it() {
        let found = full_names(&named("wraps", all()));
        assert_eq!(
            found,
            ["wire/wire::psn::wraps", "wire/wire::psn::wraps_twice", "tests/veth::wraps"]
        );
        assert_eq!(full_names(&named("tests/guest::", all())), ["tests/guest::answers"]);
        assert!(named("absent", all()).is_empty());
    }

    #[test]
    fn a_full_name_selects_one_test_even_if_another_name_begins_with_it() {
        let found = full_names(&named("wire/wire::psn::wraps", all()));
        assert_eq!(found, ["wire/wire::psn::wraps"]);
    }

    #[test]
    fn a_tier_has_its_tests_and_no_program_without_one() {
        assert_eq!(
            full_names(&with_tier(&all(), Some(1))),
            ["tests/veth::wraps", "tests/veth::other"]
        );
        assert_eq!(with_tier(&all(), Some(1)).len(), 1);
        assert!(has_tier(&all(), 2) && !has_tier(&all(), 3));
    }

    #[test]
    fn a_documentation_example_is_repeated_in_its_package() {
        assert_eq!(
            repeat_of_example("crates/roce-io/src/lib.rs - wire::Frame (line 7)"),
            "cargo test --doc --package roce-io 'wire::Frame'"
        );
    }

    #[test]
    fn a_stage_is_found_by_a_part_of_its_name_and_an_unknown_one_is_refused() {
        let options =
            Options { name: None, no_skip: false, only: Some("no such stage".to_owned()) };
        let refused = run(&options).unwrap_err().to_string();
        assert!(refused.contains("tier 2 interop"), "{refused}");
    }
}
