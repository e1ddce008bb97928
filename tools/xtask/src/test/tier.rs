//! The tests of a tier as a stage.

use super::process::{Ended, Job};
use super::schedule::{self, Company};
use super::selection::{Listed, with_tier};
use crate::stages::{Log, StageResult, last_lines};
use crate::{Result, stacks, workspace};

/// Runs those of the tests that are of a tier and of these companies, one company after the other: those of tier 0
/// with the others of their program, each of another in a process of its own.
///
/// # Errors
/// When one failed, or there is none.
pub(crate) fn run(
    all: &[Listed],
    tier: u32,
    companies: &[Company],
    log: &Log,
) -> Result<StageResult> {
    if tier > 0 {
        // Once, and not by each test that needs it.
        log.run(&mut workspace::build_for_tests())?;
    }
    let mut outcome = Outcome::default();
    for company in companies {
        let mut jobs = jobs(all, tier);
        jobs.retain(|job| schedule::company(job) == *company);
        schedule::run_all(jobs, *company, |ended| outcome.add(ended, log));
    }
    outcome.conclude()
}

fn jobs(all: &[Listed], tier: u32) -> Vec<Job> {
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
    jobs
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
            (total, true) => Ok(StageResult::Passed(format!("{total} tests"))),
            (_, false) => Err(self.faults.join("; ").into()),
        }
    }
}
