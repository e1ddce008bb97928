//! The completion that a program reads field by field.

use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, PoisonError};

use roce_verbs::Completion;

/// The completion that a program looks at between `ibv_start_poll` and `ibv_end_poll`.
///
/// In that time one thread uses the queue: it holds the lock, unless the program has promised to poll
/// the queue from one thread.
pub(crate) struct Cursor {
    lock: Option<PollLock>,
    pub(crate) completion: Cell<Option<Completion>>,
    /// Time of the poll: since the clock began, and since 1970, in nanoseconds.
    pub(crate) polled_at: Cell<(u64, u64)>,
}

impl Cursor {
    pub(crate) fn new(is_single_threaded: bool) -> Self {
        Self {
            lock: (!is_single_threaded).then(PollLock::default),
            completion: Cell::default(),
            polled_at: Cell::default(),
        }
    }

    pub(crate) fn begin(&self) {
        if let Some(lock) = &self.lock {
            lock.lock();
        }
    }

    pub(crate) fn end(&self) {
        self.completion.set(None);
        if let Some(lock) = &self.lock {
            lock.unlock();
        }
    }
}

/// A lock that one call takes and another one releases.
#[derive(Default)]
struct PollLock {
    /// The guard of the thread that holds the mutex, and used by that one alone.
    guard: Cell<Option<MutexGuard<'static, ()>>>,
    mutex: Mutex<()>,
}

impl PollLock {
    fn lock(&self) {
        let guard = self.mutex.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: `guard` stands before `mutex` and is dropped before it; the queue, and with it this
        // lock, has a fixed address from its creation until it is destroyed.
        let guard =
            unsafe { std::mem::transmute::<MutexGuard<'_, ()>, MutexGuard<'static, ()>>(guard) };
        self.guard.set(Some(guard));
    }

    fn unlock(&self) {
        self.guard.take();
    }
}
