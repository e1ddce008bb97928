//! A function that runs when the process exits.

use std::sync::atomic::{AtomicBool, Ordering};

/// Registers a handler that `exit` and the return from `main` run; the first one that is registered
/// stays.
pub(crate) fn run_at_exit(handler: extern "C" fn()) {
    // Not a `Once`: see `fork.rs`. The handler may run twice.
    static IS_REGISTERED: AtomicBool = AtomicBool::new(false);
    if !IS_REGISTERED.load(Ordering::Acquire) {
        // SAFETY: the handler may run at any time before the code of this library is unmapped. The
        // C library ties it to the shared object that registers it: `dlclose` runs and removes it.
        // A refusal (no memory) leaves `exit` without it.
        unsafe { libc::atexit(handler) };
        IS_REGISTERED.store(true, Ordering::Release);
    }
}
