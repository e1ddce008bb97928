//! Random tests that can be repeated: each case has a seed, and a failure prints the one
//! command that runs that case again.

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};
use roce_fuzz_support::{repeat_with, seeds};

/// Runs `property` on `cases` random inputs, one seed each; fails with the smallest input found.
///
/// `ROCE_SEED=n` runs that one seed instead; `ROCE_CASES=n` runs more or fewer seeds.
pub(crate) fn for_each_case<S: Strategy>(cases: u64, strategy: S, property: impl Fn(S::Value))
where
    S::Value: std::fmt::Debug,
{
    for seed in seeds(cases) {
        if let Err(why) = run_case(seed, &strategy, &property) {
            panic!("{why}\n{}", repeat_with(seed, env!("CARGO_PKG_NAME")));
        }
    }
}

fn run_case<S: Strategy>(
    seed: u64,
    strategy: &S,
    property: &impl Fn(S::Value),
) -> Result<(), String>
where
    S::Value: std::fmt::Debug,
{
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    // A capture shows the last run, which must be the failing one: so nothing is shrunk then.
    let max_shrink_iters = if std::env::var_os("ROCE_PCAP").is_some() { 0 } else { 300 };
    let config =
        Config { cases: 1, failure_persistence: None, max_shrink_iters, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, rng);
    let outcome = runner.run(strategy, |input| {
        property(input);
        Ok(())
    });
    match outcome {
        Ok(()) => Ok(()),
        Err(TestError::Fail(why, input)) => Err(format!("{why}\nsmallest input: {input:#?}")),
        Err(abort) => Err(abort.to_string()),
    }
}
