//! Lines of the bootstrap, from strangers.

use rand::Rng;
use roce_ring::Line;

use crate::repeat::for_each_case;

#[test]
fn any_text_is_refused_or_understood_as_it_would_be_sent() {
    let parts = ["HELLO", " ", "=", "a", "rank", "%", "%41", "%zz", "%C3%A9", "é", "\n", "0x", "9"];
    for_each_case(5000, |random| {
        let count = random.random_range(0..12);
        let mut text = String::from(if random.random() { "ABORT" } else { "" });
        (0..count).for_each(|_| text.push_str(parts[random.random_range(0..parts.len())]));
        if let Ok(line) = Line::parse(&text) {
            let again = line.encode().expect("what was read can be sent");
            assert_eq!(Line::parse(&again), Ok(line));
        }
    });
}
