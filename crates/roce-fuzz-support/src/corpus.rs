//! The committed corpora in `fuzz/corpus`.

use std::path::{Path, PathBuf};
use std::{env, fs};

/// Runs `body` on every input in the corpus of `target`, and prints the path of each, which a test
/// shows if it fails.
///
/// # Panics
/// If the corpus cannot be read or has fewer than `min` inputs.
pub fn replay(target: &str, min: usize, body: fn(&[u8])) {
    let mut replayed = 0;
    for entry in fs::read_dir(corpus_of(target)).expect("the corpus can be read") {
        let path = entry.expect("the corpus can be read").path();
        println!("{}", path.display());
        body(&fs::read(path).expect("the input can be read"));
        replayed += 1;
    }
    assert!(replayed >= min, "{target}: {replayed} of at least {min} inputs");
}

/// Checks that the corpus of `target` has `bytes` as the seed `name`; with `ROCE_WRITE_SEEDS=1` in
/// the environment, writes the seed first.
///
/// # Panics
/// If the seed differs or cannot be written.
pub fn check_seed(target: &str, name: &str, bytes: &[u8]) {
    let corpus = corpus_of(target);
    let path = corpus.join(format!("seed_{name}"));
    if env::var_os("ROCE_WRITE_SEEDS").is_some() {
        fs::create_dir_all(corpus).expect("the corpus can be created");
        fs::write(&path, bytes).expect("the seed can be written");
    }
    let stored = fs::read(&path).unwrap_or_default();
    assert!(stored == bytes, "{} differs; ROCE_WRITE_SEEDS=1 writes it", path.display());
}

/// Returns 300 random bytes, so that the fuzzer starts with whole scripts.
pub fn random_seed(seed: u8) -> Vec<u8> {
    let mut state = u64::from(seed);
    let mut next = || {
        // SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) as u8
    };
    (0..300).map(|_| next()).collect()
}

fn corpus_of(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target)
}
