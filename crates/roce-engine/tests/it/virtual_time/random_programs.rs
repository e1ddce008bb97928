//! The driver's properties under random programs and trouble.

use roce_fuzz_support::{repeat_with, seeds};

use super::host::Counts;
use super::world::{Trouble, World};

/// Cases of an ordinary test run.
const DEFAULT_CASES: u64 = 1500;

const TROUBLES: [Trouble; 4] =
    [Trouble::None, Trouble::Loss, Trouble::FullInterface, Trouble::NoProcessor];

/// Runs a case; the seed decides everything.
fn run(seed: u64) -> Counts {
    let trouble = TROUBLES[(seed % 4) as usize];
    let mut world = World::new(seed, trouble);
    if let Err(what) = world.run() {
        panic!("{trouble:?}: {what}\n{}", repeat_with(seed, env!("CARGO_PKG_NAME")));
    }
    let mut sum = Counts::default();
    for host in world.hosts {
        sum += Counts { joined_acks: host.driver.wire.faults().joined_acks, ..host.counts };
    }
    sum
}

#[test]
fn nothing_hangs_and_nothing_is_held_beyond_its_bound_whatever_programs_do() {
    let seeds = seeds(DEFAULT_CASES);
    let cases = seeds.end - seeds.start;
    let mut sum = Counts::default();
    for seed in seeds {
        sum += run(seed);
    }
    println!("{cases} cases: {sum:?}");
    let Counts { held_completions, held_posts, held_acks, joined_acks, sleeps, closed } = sum;
    let reached = [held_completions, held_posts, held_acks, joined_acks, sleeps, closed];
    assert!(cases < 1000 || reached.iter().all(|it| *it > 20), "{sum:?}");
}
