//! A ring of ranks of both kinds does what it should.

use std::time::Duration;

use crate::ring::{Job, Kind, Ranks, RingWorld};
use crate::{Fault, ring::expect_exact};

/// Runs a job, and expects every rank to have no wrong element.
///
/// # Errors
/// When it is not so.
pub fn run(world: &RingWorld, kinds: &[Kind], job: Job) -> Result<(), Fault> {
    let ended = Ranks::start(world, kinds, |_| job)?.wait(LIMIT)?;
    expect_exact(&ended, &job)
}

/// The same while our hosts' links carry four times what the guests' do.
///
/// # Errors
/// When it is not so.
pub fn unequal(world: &RingWorld, kinds: &[Kind], job: Job) -> Result<(), Fault> {
    world.set_our_path_mtu(4096)?;
    let ran = run(world, kinds, job);
    world.set_our_path_mtu(1024)?;
    ran
}

/// Far beyond what a job takes, with losses and on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);
