//! The body of a fuzz target: bytes become calls of a queue, which is compared with a model after each.

use std::collections::VecDeque;

use roce_fuzz_support::Script;

/// The queue under test: a ring of four places.
#[derive(Default)]
struct Ring {
    places: [u16; 4],
    first: usize,
    len: usize,
}

impl Ring {
    fn push(&mut self, value: u16) -> bool {
        if self.len == self.places.len() {
            return false;
        }
        self.places[(self.first + self.len) % self.places.len()] = value;
        self.len += 1;
        true
    }

    fn pop(&mut self) -> Option<u16> {
        let value = self.places[self.first];
        self.len = self.len.checked_sub(1)?;
        self.first = (self.first + 1) % self.places.len();
        Some(value)
    }
}

/// Carries the script out, and returns the number of its calls.
fn run(bytes: &[u8]) -> usize {
    let (mut script, mut ring, mut model) = (Script::new(bytes), Ring::default(), VecDeque::new());
    let mut calls = 0;
    while !script.is_over() {
        calls += 1;
        if script.pick(&[true, false]) {
            let value = script.number();
            assert_eq!(ring.push(value), model.len() < 4);
            model.push_back(value);
            model.truncate(4);
        } else {
            assert_eq!(ring.pop(), model.pop_front());
        }
    }
    calls
}

fn main() {
    // A fuzzer gives such bytes; any are a script.
    let calls: usize =
        (0..=255_u8).map(|seed| run(&[seed; 64].map(|byte| byte.wrapping_mul(29)))).sum();
    let mixed: Vec<u8> =
        (0..4096_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let calls = calls + run(&mixed);
    assert!(calls > 1000, "{calls}");
    println!("{calls} calls did what the model says");
}
