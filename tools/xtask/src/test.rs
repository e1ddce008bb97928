//! `cargo xtask test`: everything a change is judged by, in stages; or the tests of a name.

mod example_programs;
mod examples;
mod no_std;
mod process;
mod schedule;
mod selection;
mod stage_list;
mod tier;

use std::sync::OnceLock;
use std::thread;

use clap::Args;

use crate::Result;
use crate::stages::{Beside, Stage, StageResult, Stages};
use schedule::Company;
use selection::{full_names, has_tier, list, named};
use stage_list::{GUEST, PROGRAMS, QUICK, QUICK_ALONE, guest, stage, with_network};

/// What `cargo xtask test` takes.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Run only the tests whose full name (`package/module::test`) contains this, of any tier; if
    /// it is the full name of one test, that one alone.
    #[arg(conflicts_with_all = ["only", "quick"])]
    name: Option<String>,
    /// Count what has to be skipped on this machine as failed; so it is with a name.
    #[arg(long)]
    no_skip: bool,
    /// Run only the stages whose name contains this, such as `tier 1`, and those that they need.
    #[arg(long)]
    only: Option<String>,
    /// Run what takes up to three minutes after a build: the checks of the source, tier 0, and tests of tier 1
    /// that cross each way of a packet.
    #[arg(long, conflicts_with = "only")]
    quick: bool,
}

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
        let found = match tests.iter().map(|(_, tests)| tests.len()).sum() {
            0 => return Err(format!("no test has {name:?} in its full name").into()),
            1 => full_names(&tests).concat(),
            count => format!("{count} tests have {name:?} in their full name"),
        };
        Ok(StageResult::Passed(found))
    });
    let tests = &tests;
    if has_tier(tests, 0) {
        stages.run("tier 0", |log| tier::run(tests, 0, Company::EVERY, log));
    }
    if has_tier(tests, 1) {
        stages.run("tier 1", |log| with_network(|| tier::run(tests, 1, Company::EVERY, log)));
    }
    if has_tier(tests, 2) {
        let run_tests = |log: &_| tier::run(tests, 2, Company::EVERY, log);
        let guest = stage(GUEST, &[], Beside::Nothing, guest);
        stages.run_all(vec![guest, stage("tier 2", &[GUEST], Beside::Nothing, run_tests)], 1);
    }
    stages.finish()
}

fn run_stages(options: &Options) -> Result<()> {
    let tests = OnceLock::new();
    let all = stage_list::all(&tests);
    let wanted = |stage: &Stage| match &options.only {
        Some(part) if stage.name == QUICK_ALONE => part == QUICK_ALONE,
        Some(part) => stage.name.contains(part.as_str()),
        None if options.quick => QUICK.contains(&stage.name),
        None => stage.name != QUICK_ALONE,
    };
    let names = all.iter().map(|stage| stage.name).collect::<Vec<_>>().join(", ");
    let wanted = with_needs(all, wanted);
    if wanted.is_empty() {
        return Err(format!("no such stage; there are: {names}").into());
    }
    let mut stages = Stages::new(options.no_skip, |stage| {
        // `contains` finds a stage by its own name at least.
        format!("cargo xtask test --only '{stage}'")
    });
    let processors = thread::available_parallelism().map_or(1, usize::from);
    stages.run_all(wanted, processors);
    stages.finish()
}

/// Returns the stages that are wanted, and those that they need, in their order.
fn with_needs<'a>(all: Vec<Stage<'a>>, wanted: impl Fn(&Stage) -> bool) -> Vec<Stage<'a>> {
    let mut needed: Vec<&str> = Vec::new();
    // What is needed stands in front.
    let mut kept: Vec<Stage> = all
        .into_iter()
        .rev()
        .filter(|stage| {
            let is_kept = wanted(stage) || needed.contains(&stage.name);
            if is_kept {
                needed.extend(stage.needs);
            }
            is_kept
        })
        .collect();
    kept.reverse();
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_is_found_by_a_part_of_its_name_and_an_unknown_one_is_refused() {
        let only = Some("no such stage".to_owned());
        let options = Options { name: None, no_skip: false, only, quick: false };
        let refused = run(&options).unwrap_err().to_string();
        assert!(refused.contains("tier 2 interop"), "{refused}");
    }

    #[test]
    fn a_stage_brings_those_that_it_needs() {
        let tests = OnceLock::new();
        let kept = with_needs(stage_list::all(&tests), |stage| stage.name == "tier 2");
        let names: Vec<_> = kept.iter().map(|stage| stage.name).collect();
        assert_eq!(names, [PROGRAMS, GUEST, "tier 2"]);
    }

    #[test]
    fn stages_stand_behind_what_they_need_and_quick_names_stages() {
        let tests = OnceLock::new();
        let all = stage_list::all(&tests);
        for (at, stage) in all.iter().enumerate() {
            let stands_before = |need: &&str| all[..at].iter().any(|other| other.name == *need);
            assert!(stage.needs.iter().all(stands_before), "{}", stage.name);
        }
        for name in QUICK {
            assert!(all.iter().any(|stage| stage.name == *name), "{name}");
        }
    }
}
