//! Which tests run beside which.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;

use super::process::{Ended, Job};

/// Modules, or tests, that judge time, shares of a processor or rates, and fill both processors themselves: each
/// test runs alone.
const ALONE: &[&str] = &[
    "bench/congestion::",
    "bench/suite::",
    "roce/link::",
    "roce/run::faults::a_device_opened_twenty_times",
    "roce/send::",
    "tests/contended::",
    "tests/management_floods::",
    "tests/pause::",
    "tests/posting::",
    "tests/refused_packets::",
    "tests/ring_killed::",
    "tests/soak::",
    "tests/stopped::",
    "tests/switch::",
];

/// Modules that judge time, but wait for timers nearly all of theirs: two tests run at a time, and nothing else.
const QUIET: &[&str] = &[
    "tests/acks::",
    "tests/blocking_wait::",
    "tests/carrier::",
    "tests/connected_identifiers::",
    "tests/connection_deaths::",
    "tests/connection_timing::",
    "tests/idle::",
    "tests/interface::",
    "tests/interface_changes::",
    "tests/neighbours::",
    "tests/python_module::",
];

/// Other tests of a tier that run at a time: most wait for a timer or a process. With four, tests whose bounds are
/// seconds failed now and then on two processors.
const AT_A_TIME: usize = 2;

/// What may run beside a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Company {
    /// Other tests and other stages.
    Any,
    /// Other [`QUIET`] ones.
    Quiet,
    /// Nothing.
    Alone,
}

impl Company {
    pub(crate) const EVERY: &[Self] = &[Self::Any, Self::Quiet, Self::Alone];
}

/// Returns what may run beside a job.
///
/// A program of tier 0 has a thread for each processor, and so runs alone, too.
pub(crate) fn company(job: &Job) -> Company {
    let name = job.full_name();
    let is_in = |modules: &[&str]| modules.iter().any(|module| name.starts_with(module));
    match job.tier == 0 || is_in(ALONE) {
        true => Company::Alone,
        false if is_in(QUIET) => Company::Quiet,
        false => Company::Any,
    }
}

/// Runs all, and passes each to `ended` when it has ended.
pub(crate) fn run_all(jobs: Vec<Job>, company: Company, ended: impl FnMut(Ended)) {
    let at_a_time = match company {
        Company::Alone => 1,
        Company::Quiet | Company::Any => AT_A_TIME,
    };
    let jobs = Mutex::new(VecDeque::from(jobs));
    let (tell, told) = mpsc::channel();
    thread::scope(|threads| {
        for _ in 0..at_a_time {
            let (tell, jobs) = (tell.clone(), &jobs);
            threads.spawn(move || {
                let next = || jobs.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                while let Some(job) = next() {
                    // The other side waits until all have told.
                    let _told = tell.send(job.run());
                }
            });
        }
        drop(tell);
        told.iter().for_each(ended);
    });
}
