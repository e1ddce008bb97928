//! Random tests that can be repeated: each case has a seed, and a failure prints the one
//! command that runs that case again.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use rand::SeedableRng;
use rand::rngs::StdRng;

/// Runs `property` on `cases` random inputs, one seed each.
///
/// `ROCE_SEED=n` runs that one seed instead; `ROCE_CASES=n` runs more or fewer seeds.
pub(crate) fn for_each_case(cases: u64, property: impl Fn(&mut StdRng)) {
    let seeds = match variable("ROCE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..variable("ROCE_CASES").unwrap_or(cases),
    };
    for seed in seeds {
        let mut random = StdRng::seed_from_u64(seed);
        if let Err(why) = catch_unwind(AssertUnwindSafe(|| property(&mut random))) {
            let test = std::thread::current().name().unwrap_or("<test>").to_owned();
            eprintln!(
                "seed {seed}\nrepeat with: ROCE_SEED={seed} cargo test -p {} --test {} -- --exact {test}",
                env!("CARGO_PKG_NAME"),
                env!("CARGO_CRATE_NAME"),
            );
            resume_unwind(why);
        }
    }
}

fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} must be a number, not {text:?}")))
}
