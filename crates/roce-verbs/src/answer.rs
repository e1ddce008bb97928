//! An answer that a thread waits for.
//!
//! Unlike the channels of the standard library it registers nothing with the thread that waits, so that no memory is
//! needed there: the C library ends a process that has none for that.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Returns an answer, and what gives it.
pub(crate) fn answer<T>() -> (Answerer<T>, Answer<T>) {
    let shared = Arc::new(Shared { state: Mutex::new(State::Open), changed: Condvar::new() });
    (Answerer(Arc::clone(&shared)), Answer(shared))
}

#[derive(Debug)]
struct Shared<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

#[derive(Debug)]
enum State<T> {
    Open,
    Given(T),
    /// What would have given it was dropped.
    Gone,
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Gives an answer, or is dropped.
#[derive(Debug)]
pub(crate) struct Answerer<T>(Arc<Shared<T>>);

impl<T> Answerer<T> {
    /// Gives the answer. If nothing waits for it, it is dropped with the other end.
    pub(crate) fn give(self, value: T) {
        *self.0.lock() = State::Given(value);
    }
}

impl<T> Drop for Answerer<T> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        if matches!(*state, State::Open) {
            *state = State::Gone;
        }
        drop(state);
        self.0.changed.notify_one();
    }
}

/// An answer that may come.
#[derive(Debug)]
pub(crate) struct Answer<T>(Arc<Shared<T>>);

impl<T> Answer<T> {
    /// Waits for the answer; `None` if none can come any more.
    pub(crate) fn wait(self) -> Option<T> {
        let is_open = |state: &mut State<T>| matches!(state, State::Open);
        let waited = self.0.changed.wait_while(self.0.lock(), is_open);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *state, State::Gone) {
            State::Given(value) => Some(value),
            State::Open | State::Gone => None,
        }
    }

    /// Waits for a time at most. Returns true if none can come any more, or one has.
    pub(crate) fn is_over_within(&self, time: Duration) -> bool {
        let end = Instant::now() + time;
        let mut state = self.0.lock();
        while matches!(*state, State::Open) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.0.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn an_answer_comes_to_the_thread_that_waits_and_its_absence_does() {
        let (answerer, waited) = answer();
        let thread = thread::spawn(move || waited.wait());
        answerer.give(7);
        assert_eq!(thread.join().unwrap(), Some(7));
        let (answerer, waited) = answer::<u8>();
        let thread = thread::spawn(move || waited.wait());
        drop(answerer);
        assert_eq!(thread.join().unwrap(), None);
    }

    #[test]
    fn a_wait_with_a_limit_ends_at_it_or_when_no_answer_can_come() {
        let (answerer, waited) = answer::<()>();
        assert!(!waited.is_over_within(Duration::from_millis(1)));
        drop(answerer);
        assert!(waited.is_over_within(Duration::from_secs(60)));
    }
}
