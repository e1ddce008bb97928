//! The corpora of the fuzz targets, replayed.

use std::fs;
use std::path::{Path, PathBuf};

use super::{bootstrap, ring_machine};

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
fn every_line_in_the_corpus_is_refused_or_read_and_written_as_the_same() {
    replay("bootstrap", bootstrap);
}

#[test]
fn every_neighbour_in_the_corpus_is_served_or_found_out() {
    replay("ring_machine", ring_machine);
}
