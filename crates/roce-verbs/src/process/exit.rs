//! A function that runs when the process exits.

use std::process;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// The process that has called [`run_at_exit`] last; 0 for none.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// Not a `Once`: see `fork.rs`. The handler may run twice.
static IS_REGISTERED: AtomicBool = AtomicBool::new(false);

/// Registers a handler that `exit` and the return from `main` run; the first one that is registered
/// stays until it [begins](begin).
pub(crate) fn run_at_exit(handler: extern "C" fn()) {
    PROCESS.store(process::id(), Ordering::Relaxed);
    if !IS_REGISTERED.load(Ordering::Acquire) {
        // SAFETY: the handler may run at any time before the code of this library is unmapped. The
        // C library ties it to the shared object that registers it: `dlclose` runs and removes it.
        // A refusal (no memory) leaves `exit` without it.
        unsafe { libc::atexit(handler) };
        IS_REGISTERED.store(true, Ordering::Release);
    }
}

/// Begins the handler: from here on another is registered, for what later handlers of the program make. Returns true
/// if the process that exits is the one that has called [`run_at_exit`]: a child after `vfork` that calls `exit`
/// runs the handlers of its parent, in its memory.
pub(crate) fn begin() -> bool {
    IS_REGISTERED.store(false, Ordering::Release);
    PROCESS.load(Ordering::Relaxed) == process::id()
}
