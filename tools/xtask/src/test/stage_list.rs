//! The stages of `cargo xtask test`.

use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use roce_guest::{Architecture, Image};

use super::schedule::Company;
use super::selection::{self, Listed};
use super::{example_programs, examples, no_std, tier};
use crate::stages::{Beside, Log, Stage, StageResult};
use crate::{Result, book, cost, dropin, fuzz, host, interop, layers, rules, workspace};

/// The stage that builds the test programs and lists their tests.
pub(crate) const PROGRAMS: &str = "test programs";
/// The stage that builds the guest's image.
pub(crate) const GUEST: &str = "tier 2 guest";

/// Stages that a contributor runs before each commit.
pub(crate) const QUICK: &[&str] =
    &["format", "clippy", "layers", "rules", PROGRAMS, "tier 0", "tier 1 quick"];

/// The stage that only [`QUICK`] has: all its tests are in others, too.
pub(crate) const QUICK_ALONE: &str = "tier 1 quick";

/// For each fuzz target: its kept inputs, and a look around them. `cargo xtask fuzz` looks for longer.
const FUZZING_TIME: Duration = Duration::from_secs(5);

const FUZZ_MANIFEST: &str = "fuzz/Cargo.toml";

/// Returns all stages in their order. `tests` takes the tests of the workspace when they are built.
pub(crate) fn all(tests: &OnceLock<Vec<Listed>>) -> Vec<Stage<'_>> {
    use Beside::{Nothing, Others};
    use Company::{Alone, Any, Quiet};
    let built = || tests.get().map_or(&[][..], Vec::as_slice);
    vec![
        stage("format", &[], Nothing, format),
        stage("clippy", &[], Nothing, clippy),
        stage("layers", &[], Nothing, |_| layers::check().map(StageResult::Passed)),
        stage("rules", &[], Nothing, |_| rules::check().map(StageResult::Passed)),
        stage(PROGRAMS, &[], Nothing, |log| programs(tests, log)),
        stage("tier 0", &[PROGRAMS], Nothing, move |log| tier::run(built(), 0, &[Alone], log)),
        stage(QUICK_ALONE, &[PROGRAMS], Nothing, move |log| {
            with_network(|| tier::run(&selection::quick(built()), 1, &[Any], log))
        }),
        // From here on two things run at a time. Most tests of tier 1 wait for timers, and guests need one processor.
        stage("tier 1", &[PROGRAMS], Others, move |log| {
            with_network(|| tier::run(built(), 1, &[Any], log))
        }),
        stage(GUEST, &[], Others, guest),
        stage("tier 2", &[PROGRAMS, GUEST], Others, move |log| {
            tier::run(built(), 2, Company::EVERY, log)
        }),
        stage("tier 2 interop", &[GUEST], Others, interop::stage),
        stage("tier 2 sequences", &[GUEST], Others, interop::sequences_stage),
        stage("tier 2 programs", &[GUEST], Others, |log| dropin::stage(log, &["--only", "rxe"])),
        stage("tier 1 programs", &[], Others, |log| {
            with_network(|| dropin::stage(log, &["--no-guest"]))
        }),
        stage("tier 1 example programs", &[PROGRAMS], Others, |log| {
            with_network(|| example_programs::stage(log))
        }),
        stage("tier 0 documentation examples", &[], Others, examples::stage),
        stage("documentation", &[], Others, documentation),
        stage("no-std", &[], Others, no_std::stage),
        stage("cost", &[], Others, cost::stage),
        stage("book", &[], Others, book::stage),
        stage("fuzz", &[], Others, |log| fuzz::stage(log, FUZZING_TIME)),
        stage("tier 1 clock", &[PROGRAMS], Nothing, move |log| {
            with_network(|| tier::run(built(), 1, &[Quiet, Alone], log))
        }),
    ]
}

pub(crate) fn stage<'a>(
    name: &'static str,
    needs: &'static [&'static str],
    beside: Beside,
    work: impl FnOnce(&Log) -> Result<StageResult> + Send + 'a,
) -> Stage<'a> {
    Stage { name, needs, beside, work: Box::new(work) }
}

fn format(log: &Log) -> Result<StageResult> {
    log.run(workspace::cargo().args(["fmt", "--all", "--check"]))?;
    log.run(workspace::cargo().args(["fmt", "--check", "--manifest-path", FUZZ_MANIFEST]))?;
    Ok(StageResult::Passed(String::new()))
}

fn clippy(log: &Log) -> Result<StageResult> {
    let arguments = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
    log.run(workspace::cargo().args(arguments))?;
    Ok(StageResult::Passed(String::new()))
}

fn documentation(log: &Log) -> Result<StageResult> {
    let mut cargo = workspace::cargo();
    log.run(cargo.args(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-Dwarnings"))?;
    Ok(StageResult::Passed(String::new()))
}

fn programs(tests: &OnceLock<Vec<Listed>>, log: &Log) -> Result<StageResult> {
    let listed = selection::list(log)?;
    let without_tier = selection::full_names(&selection::with_tier(&listed, None));
    if !without_tier.is_empty() {
        let why = "ignored, and not with `tier N: what it needs`";
        return Err(format!("{why}: {}", without_tier.join(", ")).into());
    }
    let count = listed.len();
    // The stage runs once.
    let _first = tests.set(listed);
    Ok(StageResult::Passed(format!("{count} programs")))
}

/// Prepares the guest.
pub(crate) fn guest(_: &Log) -> Result<StageResult> {
    let tools =
        host::install_guest_tools(Architecture::X86_64).and_then(|()| match namespaces_missing() {
            Some(why) => Err(why.into()),
            None => host::check_tap_access(),
        });
    if let Err(why) = tools {
        return Ok(StageResult::Skipped(why.to_string()));
    }
    // The image is built by this user on this machine's network; the tests find it ready.
    let image = Image::prepare(&workspace::target().join("guest"))?;
    Ok(StageResult::Passed(image.kernel_release().to_owned()))
}

/// Runs what needs network namespaces and programs for them.
pub(crate) fn with_network(work: impl FnOnce() -> Result<StageResult>) -> Result<StageResult> {
    let missing = namespaces_missing()
        .or_else(|| host::install_missing(host::NETWORK_TOOLS).err().map(|why| why.to_string()));
    match missing {
        Some(why) => Ok(StageResult::Skipped(why)),
        None => work(),
    }
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
