//! The end of a process whose own threads have all ended.
//!
//! A program may end thread by thread: `main` calls `pthread_exit`, and the C library calls `exit` when the last
//! thread has ended. It would not, since threads of this library are left. So one of these, the monitor thread of a
//! device, looks from time to time once the main thread has ended, and calls `exit` in place of the C library.

use std::ffi::c_void;
use std::fs;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use nix::sys::eventfd::EventFd;
use roce_io::process::Own;

use crate::background_thread;
use crate::fork::PerProcess;

/// Time between two looks whether other threads are left.
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// The process whose main thread has ended; 0 for none.
static ENDED_IN: AtomicU32 = AtomicU32::new(0);

/// Lets the end of the calling thread, the main thread of a process, be noted. Meant for the constructor of a shared
/// library. Costs one of the C library's keys for data of threads.
pub fn watch_main_thread() {
    let mut key = 0;
    // SAFETY: `key` is written by the first call. The function lives as long as this library, which is not unloaded
    // while the main thread runs its code; the value is only a mark, since the function is not called for null.
    unsafe {
        if libc::pthread_key_create(&raw mut key, Some(note_end)) == 0 {
            libc::pthread_setspecific(key, ptr::without_provenance(1));
        }
    }
}

/// Runs in the main thread when it ends and the process does not.
extern "C" fn note_end(_mark: *mut c_void) {
    // A child of `fork` whose only thread was another's copy has no such mark.
    ENDED_IN.store(std::process::id(), Ordering::Release);
    for wake in wakes().iter().filter_map(Weak::upgrade).filter(|wake| wake.is_open()) {
        let _written = wake.write(1);
    }
}

/// What wakes the monitor threads of this process.
static WAKES: PerProcess<Mutex<Vec<Weak<Own<EventFd>>>>> = PerProcess::new();

fn wakes() -> MutexGuard<'static, Vec<Weak<Own<EventFd>>>> {
    WAKES.get().lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets a monitor thread be woken when the main thread ends.
pub(crate) fn register(wake: &Arc<Own<EventFd>>) {
    let mut wakes = wakes();
    wakes.retain(|wake| wake.strong_count() > 0);
    wakes.push(Arc::downgrade(wake));
}

/// Returns true if the main thread of this process has ended.
pub(crate) fn has_main_ended() -> bool {
    ENDED_IN.load(Ordering::Acquire) == std::process::id()
}

/// Calls `exit` if no thread of the process is left but those of this library. Meant for one of these.
pub(crate) fn exit_if_alone() {
    // A thread that has begun between two looks at the list may be in neither.
    if has_main_ended() && is_alone() && is_alone() {
        background_thread::restore_signals();
        std::process::exit(0);
    }
}

/// Returns true if all threads are this library's, apart from the main thread, which the kernel keeps in the list.
fn is_alone() -> bool {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else { return false };
    let own = background_thread::count();
    tasks.count() <= own + 1
}
