//! Threads of this crate's own.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::process::fork::PerProcess;
use crate::process::signals::all_but_faults;
use crate::process::thread_placement::{self, ThreadPlacement, ThreadPlacementError};

thread_local! {
    static IS_ONE: Cell<bool> = const { Cell::new(false) };
}

/// Threads of this crate's own that this process has.
static COUNT: PerProcess<AtomicUsize> = PerProcess::new();

/// Returns true in a thread of this crate's own.
pub(crate) fn is_background_thread() -> bool {
    IS_ONE.get()
}

/// Returns how many threads of this crate's own this process has.
pub(crate) fn count() -> usize {
    COUNT.get().load(Ordering::Acquire)
}

/// Counts a thread of this crate's own, as long as it lives.
#[derive(Debug)]
pub(crate) struct BackgroundThread(());

impl BackgroundThread {
    /// Makes the calling thread one: blocks its signals, except those of faults.
    pub(crate) fn begin() -> Self {
        COUNT.get().fetch_add(1, Ordering::AcqRel);
        IS_ONE.set(true);
        let _blocked = all_but_faults().thread_block();
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
