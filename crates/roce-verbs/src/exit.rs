//! Sends delayed ACKs and held posts when the process exits.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::device;

/// Longest time that `exit` waits for locks that other threads hold, and for interfaces.
const MAX_WAIT: Duration = Duration::from_millis(500);

/// Registers a handler that sends, at `exit` and at the return from `main`, the ACKs of messages that
/// the application has seen and the requests that it has posted. A device that the program has
/// leaked, or keeps in a static, is never dropped.
pub(crate) fn send_held_at_exit() {
    // Not a `Once`: see `fork.rs`. The handler may run twice.
    static IS_REGISTERED: AtomicBool = AtomicBool::new(false);
    if !IS_REGISTERED.load(Ordering::Acquire) {
        // SAFETY: the handler may run at any time before the code of this library is unmapped. The
        // C library ties it to the shared object that registers it: `dlclose` runs and removes it.
        // A refusal (no memory) leaves `exit` without it.
        unsafe { libc::atexit(at_exit) };
        IS_REGISTERED.store(true, Ordering::Release);
    }
}

extern "C" fn at_exit() {
    // A panic must not abort a process that exits. The runtime prints it.
    let _outcome = std::panic::catch_unwind(|| device::flush_held(MAX_WAIT));
}
