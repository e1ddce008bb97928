//! The corpora of the fuzz targets, replayed.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use super::samples::{headers_of, ipv4, ipv6, sample};
use crate::{
    fuzzing::{parse_frame, round_trip},
    *,
};

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
    assert!(replayed >= KnownOpcode::all().count(), "{target}: {replayed} files");
}

#[test]
fn every_frame_in_the_corpus_is_refused_or_read_without_a_panic() {
    replay("parse_frame", parse_frame);
}

#[test]
fn every_train_in_the_corpus_survives_the_round_trip() {
    replay("round_trip", round_trip);
}

/// The seeds are valid packets. `ROCE_WRITE_SEEDS=1` writes them.
#[test]
fn the_seeds_are_what_this_crate_makes() {
    let frames = KnownOpcode::all()
        .flat_map(|opcode| [sample(opcode, ipv4(), 0), sample(opcode, ipv6(), 0)])
        .chain((1..=2).map(|tags| sample(opcode::RC_SEND_ONLY, ipv4(), tags)))
        .map(|sample| (sample.name, sample.frame));
    check_seeds("parse_frame", frames);

    let instructions = KnownOpcode::all().map(|opcode| {
        let mut bytes = [0; 48];
        headers_of(opcode).emit(&mut bytes);
        (opcode.name().to_lowercase().replace(' ', "_"), bytes.to_vec())
    });
    check_seeds("round_trip", instructions);
}

fn check_seeds(target: &str, seeds: impl Iterator<Item = (String, Vec<u8>)>) {
    for (name, bytes) in seeds {
        let path = corpus_of(target).join(format!("seed_{name}"));
        if env::var_os("ROCE_WRITE_SEEDS").is_some() {
            fs::create_dir_all(corpus_of(target)).unwrap();
            fs::write(&path, &bytes).unwrap();
        }
        let stored = fs::read(&path).unwrap_or_default();
        assert!(stored == bytes, "{} is not what it was made from", path.display());
    }
}
