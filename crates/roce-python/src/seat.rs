//! One call of a group at a time.

use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use roce_collectives::{Buffer, Error, Group};

use crate::signals::Signals;

/// A group and its staging memory.
#[derive(Debug)]
pub(crate) struct Joined {
    pub(crate) group: Group,
    /// Memory through which short arguments are copied, for inputs and for outputs.
    pub(crate) staging: [Buffer; 2],
}

/// The place of a group, which one call takes at a time.
#[derive(Debug)]
pub(crate) struct Seat {
    state: Mutex<State>,
    freed: Condvar,
    signals: Signals,
}

#[derive(Debug)]
enum State {
    Free(Box<Joined>),
    Taken,
    Left,
}

/// A group that a call has taken; it is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Taken<'a> {
    seat: &'a Seat,
    /// `None` only while it is dropped.
    joined: Option<Box<Joined>>,
}

/// Why a call does not get the group.
#[derive(Debug)]
pub(crate) enum NotFree {
    /// It was left or aborted.
    Left,
    /// A signal or `abort` ended the wait for another thread's call.
    Interrupted,
}

/// Time between two questions whether a wait is to end.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

impl Seat {
    pub(crate) fn new(joined: Joined, signals: Signals) -> Self {
        Self { state: Mutex::new(State::Free(Box::new(joined))), freed: Condvar::new(), signals }
    }

    /// Waits until no other thread's call has the group, and takes it. The caller is detached from the
    /// interpreter.
    pub(crate) fn take(&self) -> Result<Taken<'_>, NotFree> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match std::mem::replace(&mut *state, State::Taken) {
                State::Free(joined) => return Ok(Taken { seat: self, joined: Some(joined) }),
                State::Left => {
                    *state = State::Left;
                    return Err(NotFree::Left);
                }
                State::Taken => {}
            }
            // The lock is not held while a handler runs, which may use the group's methods.
            let (waited, timeout) = self
                .freed
                .wait_timeout(state, CHECK_INTERVAL)
                .unwrap_or_else(PoisonError::into_inner);
            if timeout.timed_out() {
                drop(waited);
                if self.signals.are_fatal() {
                    return Err(NotFree::Interrupted);
                }
                state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            } else {
                state = waited;
            }
        }
    }

    /// Takes the group if no call has it.
    pub(crate) fn try_take(&self) -> Option<Taken<'_>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *state, State::Taken) {
            State::Free(joined) => Some(Taken { seat: self, joined: Some(joined) }),
            other => {
                *state = other;
                None
            }
        }
    }

    fn put(&self, state: State) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
        self.freed.notify_all();
    }
}

impl Taken<'_> {
    /// Leaves the group.
    ///
    /// # Errors
    /// As [`Group::leave`].
    pub(crate) fn leave(self) -> Result<(), Error> {
        self.end().map_or(Ok(()), |joined| joined.group.leave())
    }

    /// Ends the group; the other ranks learn that this one failed.
    pub(crate) fn discard(self) {
        if let Some(joined) = self.end() {
            discard(joined);
        }
    }

    fn end(mut self) -> Option<Box<Joined>> {
        let joined = self.joined.take();
        self.seat.put(State::Left);
        joined
    }
}

impl Deref for Taken<'_> {
    type Target = Joined;

    fn deref(&self) -> &Joined {
        self.joined.as_deref().expect("the group is taken out only by `end` and `drop`")
    }
}

impl DerefMut for Taken<'_> {
    fn deref_mut(&mut self) -> &mut Joined {
        self.joined.as_deref_mut().expect("the group is taken out only by `end` and `drop`")
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let Some(joined) = self.joined.take() else { return };
        if self.seat.signals.is_aborted() {
            self.seat.put(State::Left);
            discard(joined);
        } else {
            self.seat.put(State::Free(joined));
        }
    }
}

/// Drops a group. Rank 0's server stays until the others know: the interpreter goes on meanwhile.
fn discard(joined: Box<Joined>) {
    let mut joined = Some(joined);
    // An interpreter that ends does not attach: then the caller drops it.
    Python::try_attach(|py| py.detach(|| drop(joined.take())));
}
