//! The driver's properties under random programs and trouble.

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
        panic!(
            "{trouble:?}: {what}\nrepeat with: ROCE_CASE={seed} cargo test -p roce-engine --test \
             virtual_time random_programs"
        );
    }
    let mut sum = Counts::default();
    for host in world.hosts {
        sum += Counts { joined_acks: host.driver.wire.faults().joined_acks, ..host.counts };
    }
    sum
}

/// `ROCE_CASES` sets the number of cases, `ROCE_CASE` runs one.
#[test]
fn nothing_hangs_and_nothing_is_held_beyond_its_bound_whatever_programs_do() {
    let from_environment = |name| std::env::var(name).ok().and_then(|it| it.parse().ok());
    if let Some(seed) = from_environment("ROCE_CASE") {
        println!("{:?}", run(seed));
        return;
    }
    let cases = from_environment("ROCE_CASES").unwrap_or(DEFAULT_CASES);
    let mut sum = Counts::default();
    for seed in 0..cases {
        sum += run(seed);
    }
    println!("{cases} cases: {sum:?}");
    let Counts { held_completions, held_posts, held_acks, joined_acks, sleeps, closed } = sum;
    let reached = [held_completions, held_posts, held_acks, joined_acks, sleeps, closed];
    assert!(cases < 1000 || reached.iter().all(|it| *it > 20), "{sum:?}");
}
