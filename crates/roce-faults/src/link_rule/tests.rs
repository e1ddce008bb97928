use core::time::Duration;

use super::*;

fn rule(text: &str) -> LinkRule {
    LinkRule::parse(text).unwrap()
}

/// Returns the times at which a link goes down or comes back, in milliseconds, up to a time.
fn changes(text: &str, met: Option<u64>, until: u64) -> Vec<(u64, bool)> {
    let (rule, met) = (rule(text), met.map(Duration::from_millis));
    let mut changes = Vec::new();
    let mut time = Duration::ZERO;
    while let Some(next) =
        rule.next_change(time, met).filter(|next| next.as_millis() <= until.into())
    {
        changes.push((next.as_millis() as u64, rule.is_down(next, met)));
        time = next;
    }
    changes
}

#[test]
fn a_sentence_is_written_as_it_is_read() {
    for (text, same) in [
        ("rail 1 of rank 0 down from 5s for 3s", "rail 1 of rank 0 down from 5s to 8s"),
        ("rail 0 down", "rail 0 down"),
        ("rail 0 down from 2s", "rail 0 down from 2s"),
        ("rail 2 flap every 2s for 50ms", "rail 2 flap every 2s for 50ms"),
        (
            "rail 2 flap every 2s for 50ms from 1s to 9s",
            "rail 2 flap every 2s for 50ms from 1s to 9s",
        ),
        (
            "rail 1 down at requests 3 of queue pair 2 for 200ms",
            "rail 1 down at request 3 of queue pair 2 for 200ms",
        ),
        ("rail 1 down at ack 7 on rail 1", "rail 1 down at ack 7 on rail 1"),
    ] {
        assert_eq!(rule(text).to_string(), same);
        assert_eq!(rule(same), rule(text));
    }
}

#[test]
fn a_refusal_names_the_wrong_word() {
    for (text, word, expected) in [
        ("rail x down", "x", "the number of a rail"),
        ("rail 1 of host 0 down", "host", "rank"),
        ("rail 1 up", "up", "\"down\" or \"flap\""),
        ("rail 1 down for 3s", "for", "the end"),
        ("rail 1 down from 3", "3", "a time"),
        ("rail 1 down from 3s to 3s", "3s", "behind the first"),
        ("rail 1 down from 3s for 24h", "24h", "a time"),
        ("rail 1 down from 3s for 86400s", "86400s", "at most a day"),
        ("rail 1 flap 2s for 50ms", "2s", "\"every\""),
        ("rail 1 flap every 2s for 2s", "2s", "shorter"),
        ("rail 1 flap every 0s for 0s", "0s", "shorter"),
    ] {
        let error = LinkRule::parse(text).unwrap_err();
        assert_eq!(error.word, word, "{text}: {error}");
        assert!(error.to_string().contains(expected), "{text}: {error}");
    }
}

#[test]
fn a_link_goes_down_and_comes_back_when_its_sentence_says() {
    let down = |at| (at, true);
    let up = |at| (at, false);
    assert_eq!(changes("rail 1 down from 5s for 3s", None, 20_000), [down(5000), up(8000)]);
    assert_eq!(changes("rail 1 down from 5s", None, 20_000), [down(5000)]);
    assert_eq!(changes("rail 1 down", None, 20_000), []);
    let flaps = changes("rail 1 flap every 2s for 50ms", None, 5000);
    assert_eq!(flaps, [down(2000), up(2050), down(4000), up(4050)]);
    let flaps = changes("rail 1 flap every 2s for 50ms from 1s to 5s", None, 20_000);
    assert_eq!(flaps, [down(3000), up(3050)]);
    let text = "rail 1 down at request 3 for 200ms";
    assert_eq!(changes(text, None, 20_000), []);
    assert_eq!(changes(text, Some(700), 20_000), [up(900)]);
    assert!(rule(text).is_down(Duration::from_millis(700), Some(Duration::from_millis(700))));
    assert!(!rule(text).is_down(Duration::from_millis(700), None));
    assert!(rule("rail 1 down").is_down(Duration::ZERO, None));
}
