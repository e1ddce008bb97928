//! The committed corpora: one archive per target, `fuzz/corpus/TARGET.tar`.
//!
//! `seed_*` are made by tests, `kept_*` were found by the fuzzer. Files in the folder
//! `fuzz/corpus/TARGET/`, which git ignores, count as inputs too.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::{env, sync::Mutex};

/// Reads the archive of `target`: inputs by name.
///
/// # Errors
/// The archive is missing or damaged.
pub fn read_corpus(target: &str) -> io::Result<BTreeMap<String, Vec<u8>>> {
    let mut inputs = BTreeMap::new();
    let path = corpus_of(target).with_extension("tar");
    for entry in tar::Archive::new(File::open(path)?).entries()? {
        let mut entry = entry?;
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes)?;
        inputs.insert(entry.path()?.to_string_lossy().into_owned(), bytes);
    }
    Ok(inputs)
}

/// Replaces the archive of `target`. The same inputs make the same bytes.
///
/// # Errors
/// The archive cannot be written.
pub fn write_corpus(target: &str, inputs: &BTreeMap<String, Vec<u8>>) -> io::Result<()> {
    let mut archive = tar::Builder::new(Vec::new());
    for (name, bytes) in inputs {
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, name, bytes.as_slice())?;
    }
    let bytes = archive.into_inner()?;
    File::create(corpus_of(target).with_extension("tar"))?.write_all(&bytes)
}

/// Runs `body` on every input in the corpus of `target`, and prints the name of each, which a test
/// shows if it fails.
///
/// # Panics
/// If the corpus cannot be read or has fewer than `min` inputs.
pub fn replay(target: &str, min: usize, body: fn(&[u8])) {
    let mut inputs = read_corpus(target).expect("the corpus can be read");
    for file in fs::read_dir(corpus_of(target)).into_iter().flatten().flatten() {
        let name = file.file_name().to_string_lossy().into_owned();
        inputs.insert(name, fs::read(file.path()).expect("the input can be read"));
    }
    for (name, bytes) in &inputs {
        println!("{target}: {name}");
        body(bytes);
    }
    let replayed = inputs.len();
    assert!(replayed >= min, "{target}: {replayed} of at least {min} inputs");
}

/// Checks that the corpus of `target` has `bytes` as the seed `name`; with `ROCE_WRITE_SEEDS=1` in
/// the environment, writes the seed first.
///
/// # Panics
/// If the seed differs or cannot be written.
pub fn check_seed(target: &str, name: &str, bytes: &[u8]) {
    // Tests of one process write to the same archives.
    static ARCHIVES: Mutex<()> = Mutex::new(());
    let _guard = ARCHIVES.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let name = format!("seed_{name}");
    let mut inputs = read_corpus(target).unwrap_or_default();
    if env::var_os("ROCE_WRITE_SEEDS").is_some() {
        inputs.insert(name.clone(), bytes.to_vec());
        write_corpus(target, &inputs).expect("the seed can be written");
    }
    let stored = inputs.get(&name).map_or(&[][..], Vec::as_slice);
    assert!(stored == bytes, "{target}: {name} differs; ROCE_WRITE_SEEDS=1 writes it");
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
