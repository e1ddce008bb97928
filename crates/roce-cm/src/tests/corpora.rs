//! The corpora of the fuzz targets, replayed; and random scripts.

use std::env;

use roce_fuzz_support::{check_seed, random_seed, replay};

use crate::fuzzing::{cm_agent, cm_pair};

#[test]
fn every_script_of_datagrams_in_the_corpus_leaves_the_agent_sound() {
    replay("cm_agent", 1, cm_agent);
}

#[test]
fn every_pair_in_the_corpus_agrees() {
    replay("cm_pair", 1, cm_pair);
}

#[test]
fn the_stored_seeds_are_the_generated_ones() {
    for seed in 0..8 {
        let name = format!("random_{seed}");
        check_seed("cm_agent", &name, &random_seed(seed));
        check_seed("cm_pair", &name, &random_seed(seed)[..80]);
    }
}

/// Prints how to repeat a random case that fails.
struct Case {
    test: &'static str,
    seed: u64,
}

impl Drop for Case {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self { test, seed } = self;
            eprintln!("seed {seed}: ROCE_CASE={seed} cargo test -p roce-cm {test}");
        }
    }
}

/// Runs `body` on random bytes of `cases` seeds, or of the one in `ROCE_CASE`.
fn random(test: &'static str, cases: u64, len: usize, body: fn(&[u8])) {
    let only = env::var("ROCE_CASE").ok().map(|it| it.parse().expect("ROCE_CASE is a seed"));
    let seeds = only.map_or(0..cases, |seed: u64| seed..seed + 1);
    for seed in seeds {
        let _case = Case { test, seed };
        let mut random = crate::random::Random::new(seed);
        let bytes: Vec<u8> = (0..len).map(|_| random.number() as u8).collect();
        body(&bytes);
    }
}

#[test]
fn random_pairs_agree() {
    random("random_pairs_agree", 20_000, 100, cm_pair);
}

#[test]
fn random_datagrams_leave_the_agent_sound() {
    random("random_datagrams_leave_the_agent_sound", 4000, 1500, cm_agent);
}
