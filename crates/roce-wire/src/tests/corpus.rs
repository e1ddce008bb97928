//! The corpora of the fuzz targets, replayed.

use roce_fuzz_support::{check_seed, replay};

use super::samples::{headers_of, ipv4, ipv6, sample};
use crate::{
    fuzzing::{parse_frame, round_trip},
    *,
};

#[test]
fn every_frame_in_the_corpus_is_refused_or_read_without_a_panic() {
    replay("parse_frame", KnownOpcode::all().count(), parse_frame);
}

#[test]
fn every_train_in_the_corpus_survives_the_round_trip() {
    replay("round_trip", KnownOpcode::all().count(), round_trip);
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
    seeds.for_each(|(name, bytes)| check_seed(target, &name, &bytes));
}
