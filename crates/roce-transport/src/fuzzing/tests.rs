//! The corpora of the fuzz targets, replayed.

use std::fs;
use std::path::{Path, PathBuf};

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
