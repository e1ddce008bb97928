//! Sends delayed ACKs and held posts when the process exits, and then leaves its memory alone.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::device;

/// Longest time that `exit` waits for locks that other threads hold, for interfaces and threads.
const MAX_WAIT: Duration = Duration::from_millis(500);

/// Registers a handler that sends, at `exit` and at the return from `main`, the ACKs of messages that
/// the application has seen and the requests that it has posted. A device that the program has
/// leaked, or keeps in a static, is never dropped.
///
/// Then it ends the devices' threads: handlers and destructors that run later may free memory that a
/// peer still writes into. Only their own calls run rounds, those that wait for events included: a
/// thread that sleeps in one is woken, and drives the device from then on.
pub(crate) fn stop_at_exit() {
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
    let _outcome = std::panic::catch_unwind(|| device::stop_all(MAX_WAIT));
}
