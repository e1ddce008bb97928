//! The end of a device at the end of its process, in the monitor thread.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Instant;

/// Lets the monitor thread end a device for a thread that exits, which may hold any lock. The thread that exits
/// [asks](Self::ask) and looks whether it [is done](Self::is_done): neither allocates.
#[derive(Default)]
pub(super) struct Ending {
    end: OnceLock<Box<dyn Fn(Instant) + Send + Sync>>,
    asked: Mutex<Option<Instant>>,
    is_done: AtomicBool,
}

impl Ending {
    /// Says how the device is ended, at the latest at an instant.
    pub(super) fn set(&self, end: impl Fn(Instant) + Send + Sync + 'static) {
        // The first one stays.
        let _set = self.end.set(Box::new(end));
    }

    /// Asks for the end of the device. The caller wakes the thread. Returns false if there is no way to end it.
    pub(super) fn ask(&self, deadline: Instant) -> bool {
        // Held for moments, by the monitor thread alone.
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = Some(deadline);
        self.end.get().is_some()
    }

    /// Ends the device if that was asked for.
    pub(super) fn end_if_asked(&self) {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((deadline, end)) = asked.zip(self.end.get()) {
            end(deadline);
            self.note_done();
        }
    }

    pub(super) fn note_done(&self) {
        self.is_done.store(true, Ordering::Release);
    }

    pub(super) fn is_done(&self) -> bool {
        self.is_done.load(Ordering::Acquire)
    }
}

impl fmt::Debug for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ending").field("is_done", &self.is_done()).finish_non_exhaustive()
    }
}
