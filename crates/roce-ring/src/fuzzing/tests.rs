//! The corpora of the fuzz targets, replayed.

use std::fs;
use std::path::{Path, PathBuf};

use super::{records, ring_machine};

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
fn every_record_in_the_corpus_is_written_as_it_was_read() {
    replay("bootstrap", records);
}

#[test]
fn every_neighbour_in_the_corpus_is_served_or_found_out() {
    replay("ring_machine", ring_machine);
}

#[test]
fn the_stored_seeds_are_the_generated_ones() {
    for seed in 0..16 {
        check_seed("ring_machine", &format!("dice_{seed}"), &random_bytes(seed));
    }
}

/// Seeds by dice, so long that the fuzzer begins with whole scripts.
fn random_bytes(seed: u8) -> Vec<u8> {
    let mut state = u64::from(seed);
    let mut next_byte = || {
        // splitmix64
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) as u8
    };
    (0..300).map(|_| next_byte()).collect()
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
