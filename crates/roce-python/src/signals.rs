//! Signals of the process while a call waits, and the end that another thread asks for.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use roce_collectives::Interrupt;

/// Why calls of a group give up.
#[derive(Clone, Debug, Default)]
pub(crate) struct Signals {
    /// `abort` was called.
    is_aborted: Arc<AtomicBool>,
    /// The exception of a signal's handler.
    raised: Arc<Mutex<Option<PyErr>>>,
}

impl Signals {
    /// Returns true if a call is to give up: Python runs the handlers of signals, if this is the main
    /// thread, and one raises an exception; or `abort` was called.
    pub(crate) fn are_fatal(&self) -> bool {
        if self.is_aborted() {
            return true;
        }
        // An interpreter that ends does not come back: the thread is to end, too.
        let checked = Python::try_attach(|py| py.check_signals());
        match checked {
            Some(Ok(())) => false,
            Some(Err(raised)) => {
                *self.raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(raised);
                true
            }
            None => true,
        }
    }

    /// Returns the question for a group.
    pub(crate) fn interrupt(&self) -> Interrupt {
        let signals = self.clone();
        Interrupt::new(move || signals.are_fatal())
    }

    /// Returns true once `abort` was called.
    pub(crate) fn is_aborted(&self) -> bool {
        self.is_aborted.load(Ordering::Acquire)
    }

    /// Ends a call that waits.
    pub(crate) fn abort(&self) {
        self.is_aborted.store(true, Ordering::Release);
    }

    /// Takes the exception of a signal's handler.
    pub(crate) fn take_raised(&self) -> Option<PyErr> {
        self.raised.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
