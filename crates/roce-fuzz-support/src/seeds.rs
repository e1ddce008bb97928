//! The seeds of random tests.

use std::env;
use std::ops::Range;

/// Returns the seeds of a random test that runs `cases` of them: as many as `ROCE_CASES` says instead, or that
/// in `ROCE_SEED` alone.
///
/// ```
/// assert!(!roce_fuzz_support::seeds(3).is_empty());
/// ```
///
/// # Panics
/// When one of these is no number.
pub fn seeds(cases: u64) -> Range<u64> {
    match variable("ROCE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..variable("ROCE_CASES").unwrap_or(cases),
    }
}

/// Returns the line that names a seed and the command that repeats the calling test with it, for a test of
/// `package`.
///
/// ```
/// let line = roce_fuzz_support::repeat_with(7, "roce-cm");
/// assert!(line.starts_with("seed 7\nrepeat with: ROCE_SEED=7 cargo test -p roce-cm "));
/// ```
pub fn repeat_with(seed: u64, package: &str) -> String {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or_default();
    format!("seed {seed}\nrepeat with: ROCE_SEED={seed} cargo test -p {package} {test}")
}

fn variable(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} must be a number, not {text:?}")))
}
