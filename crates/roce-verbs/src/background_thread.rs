//! Threads of this crate's own.

use std::cell::Cell;

use crate::signals::all_but_faults;
use crate::thread_placement::{self, ThreadPlacement, ThreadPlacementError};

thread_local! {
    static IS_ONE: Cell<bool> = const { Cell::new(false) };
}

/// Returns true in a thread of this crate's own.
pub(crate) fn is_background_thread() -> bool {
    IS_ONE.get()
}

/// Blocks signals in the calling thread, except those of faults, and places it as the device's
/// configuration says: on any CPU unless one was chosen, whatever its creator was bound to. A launcher
/// that binds a rank to one core must not bind this thread to it too.
pub(crate) fn set_up_background_thread(
    placement: ThreadPlacement,
) -> Result<(), ThreadPlacementError> {
    IS_ONE.set(true);
    let _blocked = all_but_faults().thread_block();
    // Otherwise the kernel may end every sleep 50 µs late. A refusal leaves it so.
    let _set = nix::sys::prctl::set_timerslack(1);
    if placement.cpu.is_none() {
        thread_placement::unbind();
    }
    placement.apply()
}
