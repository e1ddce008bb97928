use proptest::option;
use proptest::prelude::*;

use super::*;

fn selectors(moments: impl Strategy<Value = VerbMoment>) -> impl Strategy<Value = VerbSelector> {
    let which = prop_oneof![
        (1..u64::MAX, 0..1000u64)
            .prop_map(|(first, more)| Which::Range(first, first.saturating_add(more))),
        (1..u64::MAX).prop_map(|first| Which::Range(first, u64::MAX)),
        (1..u64::MAX).prop_map(Which::Every),
    ];
    (moments, which, option::of(1..u32::MAX), option::of(any::<u32>())).prop_map(
        |(moment, which, queue_pair, rank)| VerbSelector {
            moment,
            which,
            queue_pair: queue_pair.filter(|_| moment.has_queue_pair()),
            rank,
        },
    )
}

fn one_of<T: Copy + core::fmt::Debug + 'static>(
    all: impl Iterator<Item = T>,
) -> impl Strategy<Value = T> {
    prop::sample::select(all.collect::<Vec<_>>())
}

fn rules() -> impl Strategy<Value = VerbRule> {
    let calls = VerbMoment::all().filter(|it| !it.is_completion());
    let completions = VerbMoment::all().filter(|it| it.is_completion());
    let with_queue_pair = VerbMoment::all().filter(|it| it.has_queue_pair());
    let rule = |(fault, at)| VerbRule { fault, at };
    prop_oneof![
        (one_of(Errno::all()).prop_map(VerbFault::Errno), selectors(one_of(calls))).prop_map(rule),
        (one_of(FaultStatus::all()).prop_map(VerbFault::Status), selectors(one_of(completions)))
            .prop_map(rule),
        (
            one_of(FaultEventKind::all()).prop_map(VerbFault::Raise),
            selectors(one_of(with_queue_pair))
        )
            .prop_map(rule),
    ]
}

proptest! {
    #[test]
    fn a_rule_is_read_back_from_its_sentence(rule in rules()) {
        let text = rule.to_string();
        prop_assert_eq!(VerbRule::parse(&text), Ok(rule), "{}", text);
    }

    #[test]
    fn no_text_panics(text in "(fail|raise) [a-zA-Zé0-9_ -]{0,60}") {
        let _ = VerbRule::parse(&text);
    }

    #[test]
    fn a_word_that_is_replaced_is_named(rule in rules(), place in any::<prop::sample::Index>()) {
        let text = rule.to_string();
        let mut words: Vec<_> = text.split(' ').collect();
        let place = place.index(words.len());
        words[place] = "wrong";
        let text = words.join(" ");
        prop_assert_eq!(VerbRule::parse(&text).unwrap_err().word, "wrong", "{}", text);
    }
}

#[test]
fn names_may_be_those_of_libibverbs() {
    for (text, same) in [
        ("fail ibv_post_send 3 with enomem", "fail post-send 3 with ENOMEM"),
        ("fail reg_mr from 5 with ENOMEM", "fail reg-mr from 5 with ENOMEM"),
        ("fail completions 2 to 4 with WR_FLUSH_ERR", "fail completion 2 to 4 with flushed"),
        (
            "fail every 100th completion with IBV_WC_RETRY_EXC_ERR",
            "fail every 100th completion with retry-exceeded",
        ),
        (
            "raise IBV_EVENT_QP_FATAL at completion 10 of queue pair 1",
            "raise qp-fatal at completion 10 of queue pair 1",
        ),
        ("raise port_err at alloc_pd 1", "raise port-error at alloc-pd 1"),
    ] {
        assert_eq!(VerbRule::parse(text).unwrap().to_string(), same);
    }
}

#[test]
fn a_refusal_names_the_wrong_word_and_what_may_stand_there() {
    for (text, word, expected) in [
        ("drop send 1", "drop", "fail or raise"),
        ("fail send 1 with ENOMEM", "send", "post-send"),
        ("fail post-send with ENOMEM", "with", "a number"),
        ("fail post-send 1", "", "with"),
        ("fail post-send 1 with retry-exceeded", "retry-exceeded", "ENOMEM"),
        ("fail completion 1 with ENOMEM", "ENOMEM", "retry-exceeded"),
        ("fail completion 1 with success", "success", "retry-exceeded"),
        ("fail reg-mr 1 of queue pair 2 with ENOMEM", "queue", "has no queue pair"),
        ("raise qp-fatal at every 2nd reg-mr", "reg-mr", "post-send"),
        ("raise qp-fatal 10", "10", "at"),
        ("raise qp-down at completion 10", "qp-down", "qp-fatal"),
        ("fail post-send 1 with ENOMEM now", "now", "the end"),
    ] {
        let error = VerbRule::parse(text).unwrap_err();
        assert_eq!(error.word, word, "{text}");
        assert!(error.expected.contains(expected), "{text}: {error}");
    }
}

#[test]
fn a_counter_counts_the_calls_of_its_queue_pair() {
    let mut counter =
        VerbCounter::new(VerbRule::parse("fail post-send 2 of queue pair 2 with EIO").unwrap().at);
    let seen = [1, 2, 1, 2, 2].map(|pair| counter.admits(VerbMoment::PostSend, Some(pair)));
    assert_eq!(seen, [false, false, false, true, false]);
}
