//! Deadlines by key, and the times that messages wait for an answer.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use roce_wire::Instant;

use roce_wire::management::CmTimeout;

/// One deadline for each key.
#[derive(Debug)]
pub(crate) struct Timers<K> {
    by_key: BTreeMap<K, Instant>,
    by_time: BTreeSet<(Instant, K)>,
}

impl<K: Ord + Copy> Timers<K> {
    pub(crate) const fn new() -> Self {
        Self { by_key: BTreeMap::new(), by_time: BTreeSet::new() }
    }

    /// Sets or moves the deadline of `key`.
    pub(crate) fn set(&mut self, key: K, at: Instant) {
        self.cancel(key);
        self.by_key.insert(key, at);
        self.by_time.insert((at, key));
    }

    /// Removes the deadline of `key`, if there is one.
    pub(crate) fn cancel(&mut self, key: K) {
        if let Some(at) = self.by_key.remove(&key) {
            self.by_time.remove(&(at, key));
        }
    }

    /// Returns the next deadline.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Removes and returns the key whose deadline is the first, if that is not after `now`.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<K> {
        if self.next()? <= now { self.pop_first() } else { None }
    }

    /// Removes and returns the key whose deadline is the first.
    pub(crate) fn pop_first(&mut self) -> Option<K> {
        let (_, key) = self.by_time.pop_first()?;
        self.by_key.remove(&key);
        Some(key)
    }

    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }
}

/// Returns the time of `timeout` as kernels count it: 2^(code − 8) ms, at least 1 ms.
//= rule cm-time-in-milliseconds: cm.c: cm_convert_to_ms
//# Connection management waits 2^(code - 8) ms for a timeout, and 1 ms for codes below 8.
pub(crate) fn wait_of(timeout: CmTimeout) -> Duration {
    Duration::from_millis(1 << timeout.code().saturating_sub(8))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(number: u64) -> Instant {
        Instant::START + Duration::from_secs(number)
    }

    #[test]
    fn deadlines_come_in_their_order_and_only_once() {
        let mut timers = Timers::new();
        timers.set('a', second(3));
        timers.set('b', second(1));
        timers.set('a', second(2));
        timers.set('c', second(9));
        timers.cancel('c');
        assert_eq!(timers.len(), 2);
        assert_eq!(timers.next(), Some(second(1)));
        assert_eq!(timers.pop_due(Instant::START + Duration::from_millis(999)), None);
        let due = [(); 3].map(|()| timers.pop_due(second(2)));
        assert_eq!(due, [Some('b'), Some('a'), None]);
        assert_eq!(timers.next(), None);
    }

    //= test cm-time-in-milliseconds
    #[test]
    fn timeouts_are_powers_of_two_in_milliseconds() {
        let wait = |code| wait_of(CmTimeout::from_code(code)).as_millis();
        assert_eq!([0, 8, 9, 18, 19, 20].map(wait), [1, 1, 2, 1024, 2048, 4096]);
    }
}
