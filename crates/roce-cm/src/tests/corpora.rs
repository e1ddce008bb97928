//! The corpora of the fuzz targets, replayed; and random scripts.

use roce_fuzz_support::{check_seed, random_seed, repeat_with, replay, seeds};

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
struct Case(u64);

impl Drop for Case {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", repeat_with(self.0, "roce-cm"));
        }
    }
}

/// Runs `body` on random bytes of some seeds.
fn random(cases: u64, len: usize, body: fn(&[u8])) {
    for seed in seeds(cases) {
        let _case = Case(seed);
        let mut random = crate::random::Random::new(seed);
        let bytes: Vec<u8> = (0..len).map(|_| random.number() as u8).collect();
        body(&bytes);
    }
}

#[test]
fn random_pairs_agree() {
    random(20_000, 100, cm_pair);
}

#[test]
fn random_datagrams_leave_the_agent_sound() {
    random(4000, 1500, cm_agent);
}
