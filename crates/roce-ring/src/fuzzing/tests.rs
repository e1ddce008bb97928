//! The corpora of the fuzz targets, replayed.

use roce_fuzz_support::{check_seed, random_seed, replay};

use super::{records, ring_machine};

#[test]
fn every_record_in_the_corpus_is_written_as_it_was_read() {
    replay("bootstrap", 1, records);
}

#[test]
fn every_neighbour_in_the_corpus_is_served_or_found_out() {
    replay("ring_machine", 1, ring_machine);
}

#[test]
fn the_stored_seeds_are_the_generated_ones() {
    for seed in 0..16 {
        check_seed("ring_machine", &format!("dice_{seed}"), &random_seed(seed));
    }
}
