//! Threads of this crate's own.

use std::cell::Cell;

use nix::sys::signal::{SigSet, Signal};

use crate::thread_placement::{self, ThreadPlacement, ThreadPlacementError};

/// Signals that the kernel sends to a thread because of what it executes.
const FAULTS: [Signal; 6] = [
    Signal::SIGSEGV,
    Signal::SIGBUS,
    Signal::SIGFPE,
    Signal::SIGILL,
    Signal::SIGTRAP,
    Signal::SIGSYS,
];

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
    let mut blocked = SigSet::all();
    // The kernel ends a process of which a thread faults that blocks the signal, without a call of the
    // handler that the program may have.
    FAULTS.into_iter().for_each(|signal| blocked.remove(signal));
    let _blocked = blocked.thread_block();
    // Otherwise the kernel may end every sleep 50 µs late. A refusal leaves it so.
    let _set = nix::sys::prctl::set_timerslack(1);
    if placement.cpu.is_none() {
        thread_placement::unbind();
    }
    placement.apply()
}
