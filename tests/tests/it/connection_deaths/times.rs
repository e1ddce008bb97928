//! How long peers are told nothing.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use super::TOLD;
use super::process::Death;
use super::victim::State;

/// Times from deaths to the peer's events.
#[derive(Default)]
pub(crate) struct Times(pub(crate) BTreeMap<(State, Death), Vec<Duration>>);

impl Times {
    pub(crate) fn report(&self) -> String {
        let mut text = String::new();
        for ((state, death), times) in &self.0 {
            let longest = times.iter().max().unwrap().as_millis();
            let mean = times.iter().sum::<Duration>().as_millis() / times.len() as u128;
            let state = format!("{state:?}");
            let death = format!("{death:?}");
            let count = times.len();
            writeln!(
                text,
                "{state:20} {death:10} {count:5} times, {mean:4} ms, at most {longest:4} ms"
            )
            .unwrap();
        }
        text
    }

    pub(crate) fn late(&self) -> usize {
        self.0.values().flatten().filter(|time| **time > TOLD).count()
    }

    pub(crate) fn count(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }
}
