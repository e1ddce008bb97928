//! The corpora of the fuzz targets, replayed.

use std::fs;
use std::path::{Path, PathBuf};

use proptest::collection::vec;
use proptest::prelude::*;

use super::{pair_script, requester, responder};

fn corpus_of(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target)
}

fn replay(target: &str, body: fn(&[u8])) {
    let mut replayed = 0;
    for entry in fs::read_dir(corpus_of(target)).unwrap() {
        let path = entry.unwrap().path();
        println!("{}", path.display()); // shown when it fails
        body(&fs::read(path).unwrap());
        replayed += 1;
    }
    assert!(replayed > 0, "{target} has no corpus");
}

#[test]
fn every_script_of_requests_in_the_corpus_leaves_the_engine_sound() {
    replay("responder", responder);
}

#[test]
fn every_script_of_answers_in_the_corpus_leaves_the_engine_sound() {
    replay("requester", requester);
}

#[test]
fn every_misfortune_in_the_corpus_is_survived_or_told() {
    replay("pair_script", pair_script);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]
    #[test]
    fn every_misfortune_that_dice_think_of_is_survived_or_told(
        orders in vec(any::<u8>(), 0..200),
        // Mostly nothing befalls a frame: else no connection lives for long.
        fates in vec(prop_oneof![9 => Just(0), 1 => any::<u8>()], 0..400),
    ) {
        pair_script(&[orders, fates].concat());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]
    #[test]
    fn every_script_that_dice_think_of_leaves_the_engine_sound(
        script in vec(any::<u8>(), 0..1000),
    ) {
        responder(&script);
        requester(&script);
    }
}

#[test]
fn the_seeds_are_those_that_the_dice_gave() {
    for target in ["responder", "requester", "pair_script"] {
        for seed in 0..16 {
            check_seed(target, &format!("dice_{seed}"), &dice(seed));
        }
    }
}

/// Seeds by dice, so long that the fuzzer begins with whole scripts.
fn dice(seed: u8) -> Vec<u8> {
    let mut state = u64::from(seed);
    let mut throw = || {
        // splitmix64
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) as u8
    };
    (0..300).map(|_| throw()).collect()
}

/// `ROCE_WRITE_SEEDS=1` writes them anew.
fn check_seed(target: &str, name: &str, bytes: &[u8]) {
    let path = corpus_of(target).join(format!("seed_{name}"));
    if std::env::var_os("ROCE_WRITE_SEEDS").is_some() {
        fs::write(&path, bytes).unwrap();
    }
    let stored = fs::read(&path).unwrap_or_default();
    assert!(stored == bytes, "{} is not what it was made from", path.display());
}
