//! The corpora of the fuzz targets, replayed.

use proptest::collection::vec;
use proptest::prelude::*;

use roce_fuzz_support::{check_seed, random_seed, replay};

use super::{pair_script, requester, responder};

#[test]
fn every_script_of_requests_in_the_corpus_leaves_the_engine_sound() {
    replay("responder", 1, responder);
}

#[test]
fn every_script_of_responses_in_the_corpus_leaves_the_engine_sound() {
    replay("requester", 1, requester);
}

#[test]
fn every_misfortune_in_the_corpus_is_survived_or_told() {
    replay("pair_script", 1, pair_script);
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
fn the_stored_seeds_are_the_generated_ones() {
    for target in ["responder", "requester", "pair_script"] {
        for seed in 0..16 {
            check_seed(target, &format!("dice_{seed}"), &random_seed(seed));
        }
    }
    // Each service, with receives of its own and with shared ones.
    for code in 0..6 {
        let random = random_seed(16 + code);
        let pair = [&[128, 0, 0x3f, code][..], &random].concat();
        check_seed("pair_script", &format!("service_{code}"), &pair);
        let (psn, service) = ([0, 0x80][usize::from(code % 2)], [0, 8 * 17, 12 * 17]);
        let lone = [&[0, 0, psn, service[usize::from(code / 2)] + 16][..], &random].concat();
        check_seed("responder", &format!("service_{code}"), &lone);
        check_seed("requester", &format!("service_{code}"), &lone);
    }
}
