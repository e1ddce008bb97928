//! Random tests that can be repeated: each case has a seed, and a failure prints the one
//! command that runs that case again.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use rand::SeedableRng;
use rand::rngs::StdRng;
use roce_fuzz_support::{repeat_with, seeds};

/// Runs `property` on `cases` random inputs, one seed each.
///
/// `ROCE_SEED=n` runs that one seed instead; `ROCE_CASES=n` runs more or fewer seeds.
pub(crate) fn for_each_case(cases: u64, property: impl Fn(&mut StdRng)) {
    for seed in seeds(cases) {
        let mut random = StdRng::seed_from_u64(seed);
        if let Err(why) = catch_unwind(AssertUnwindSafe(|| property(&mut random))) {
            eprintln!("{}", repeat_with(seed, env!("CARGO_PKG_NAME")));
            resume_unwind(why);
        }
    }
}
