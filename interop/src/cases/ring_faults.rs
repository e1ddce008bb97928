//! One rank fails a ring of both kinds: the others say which.

use std::time::{Duration, Instant};

use crate::Fault;
use crate::fault::{expect, expect_equal};
use crate::ring::{Ended, Job, Kind, Ranks, RingWorld};

/// Kills a rank while operations are under way, and expects every other to end soon (two seconds are
/// promised, on a machine that has time), with an error that names it.
///
/// # Errors
/// When it is not so.
pub fn killed(world: &RingWorld, kinds: &[Kind], culprit: usize) -> Result<(), Fault> {
    let mut ranks = under_way(world, kinds)?;
    ranks.kill(culprit)?;
    expect_blamed(&ranks.wait(START_LIMIT)?, culprit, SOON)
}

/// Cuts what the first guest sends while operations are under way, and expects the same, a little
/// later: the others have to try for a while.
///
/// # Errors
/// When it is not so.
pub fn mute(world: &RingWorld, kinds: &[Kind], culprit: usize) -> Result<(), Fault> {
    let ranks = under_way(world, kinds)?;
    world.guest(0).set_netem("loss 100%")?;
    let ended = ranks.wait(START_LIMIT);
    world.guest(0).set_netem("")?;
    expect_blamed(&ended?, culprit, SOON + TRYING)
}

/// Lets a rank come with another type than the others, and expects all to be refused with the
/// rank, the key and both values.
///
/// # Errors
/// When it is not so.
pub fn another_type(world: &RingWorld, kinds: &[Kind], culprit: usize) -> Result<(), Fault> {
    let job = |rank| match rank == culprit {
        true => Job { data_type: "int32", ..Job::new() },
        false => Job::new(),
    };
    for end in Ranks::start(world, kinds, job)?.wait(START_LIMIT)? {
        expect_blame(&end, culprit)?;
        if end.kind == Kind::Rxe {
            expect_equal("the C program's status when refused", end.status, Some(4))?;
        }
        for word in ["type", "int32", "float"] {
            expect(end.stderr.contains(word), || format!("{end}: does not say `{word}`"))?;
        }
    }
    Ok(())
}

/// Starts operations without end, and returns in the middle of them.
fn under_way(world: &RingWorld, kinds: &[Kind]) -> Result<Ranks, Fault> {
    let job = Job { min: SIZE, max: SIZE, iterations: u64::from(u32::MAX), ..Job::new() };
    let job = Job { rxe_timeout: 16, rxe_retry: 6, ..job };
    let before = packets(world)?;
    let ranks = Ranks::start(world, kinds, |_| job)?;
    let deadline = Instant::now() + START_LIMIT;
    // The guest has sent more than any beginning takes.
    while packets(world)? < before + UNDER_WAY {
        if Instant::now() > deadline {
            let said = ranks.wait(Duration::ZERO);
            return Err(Fault::Wrong(format!("nothing is sent after {START_LIMIT:?}: {said:?}")));
        }
    }
    Ok(ranks)
}

/// Expects every other rank to have failed in time with an error that names the culprit.
fn expect_blamed(ended: &[Ended], culprit: usize, within: Duration) -> Result<(), Fault> {
    for end in ended.iter().filter(|end| end.rank != culprit) {
        expect_blame(end, culprit)?;
        expect(end.after < within, || format!("{end}: only after {:?}", end.after))?;
    }
    Ok(())
}

/// Expects a rank to have failed with an error that names the culprit.
fn expect_blame(end: &Ended, culprit: usize) -> Result<(), Fault> {
    let blames = end.stderr.contains(&format!("rank {culprit}"));
    expect(end.status.is_some_and(|status| status != 0) && blames, || {
        format!("{end}: should have failed and named rank {culprit}")
    })
}

/// How many packets the first guest has sent since it was booted.
fn packets(world: &RingWorld) -> Result<u64, Fault> {
    let counter = "/sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts";
    let text = world.guest(0).run_ok(&format!("cat {counter}"))?;
    text.trim().parse().map_err(Fault::ours("read a guest's counter"))
}

const SIZE: u64 = 64 << 10;
/// Packets of some ten operations.
const UNDER_WAY: u64 = 1000;
const START_LIMIT: Duration = Duration::from_secs(30);
/// How long a rank may not know that another is dead.
const SOON: Duration = Duration::from_secs(4);
/// How long ours and rxe resend before they give up, with the settings here: two seconds.
const TRYING: Duration = Duration::from_secs(4);
