//! Threads of this crate's own.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

use nix::sys::signal::{SigSet, SigmaskHow};

use crate::fork::PerProcess;
use crate::signals::all_but_faults;
use crate::thread_placement::{self, ThreadPlacement, ThreadPlacementError};

thread_local! {
    /// The signals that the creator of this thread had blocked, if this is a thread of this crate's own.
    static BLOCKED_BEFORE: Cell<Option<SigSet>> = const { Cell::new(None) };
}

/// Threads of this crate's own that this process has.
static COUNT: PerProcess<AtomicUsize> = PerProcess::new();

/// Returns true in a thread of this crate's own.
pub(crate) fn is_background_thread() -> bool {
    BLOCKED_BEFORE.get().is_some()
}

/// Returns how many threads of this crate's own this process has.
pub(crate) fn count() -> usize {
    COUNT.get().load(Ordering::Acquire)
}

/// Lets the calling thread, one of this crate's own, have the signals that its creator had: it runs code of the
/// program from now on.
pub(crate) fn restore_signals() {
    if let Some(before) = BLOCKED_BEFORE.get() {
        let _restored = before.thread_set_mask();
    }
}

/// Counts a thread of this crate's own, as long as it lives.
#[derive(Debug)]
pub(crate) struct BackgroundThread(());

impl BackgroundThread {
    /// Makes the calling thread one: blocks its signals, except those of faults.
    pub(crate) fn begin() -> Self {
        COUNT.get().fetch_add(1, Ordering::AcqRel);
        let before = all_but_faults().thread_swap_mask(SigmaskHow::SIG_BLOCK);
        BLOCKED_BEFORE.set(Some(before.unwrap_or_else(|_| SigSet::empty())));
        // Otherwise the kernel may end every sleep 50 µs late. A refusal leaves it so.
        let _set = nix::sys::prctl::set_timerslack(1);
        Self(())
    }

    /// Places the calling thread as the device's configuration says: on any CPU unless one was chosen, whatever its
    /// creator was bound to. A launcher that binds a rank to one core must not bind this thread to it too.
    pub(crate) fn place(&self, placement: ThreadPlacement) -> Result<(), ThreadPlacementError> {
        if placement.cpu.is_none() {
            thread_placement::unbind();
        }
        placement.apply()
    }
}

impl Drop for BackgroundThread {
    fn drop(&mut self) {
        COUNT.get().fetch_sub(1, Ordering::AcqRel);
    }
}
