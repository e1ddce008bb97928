//! The end of a process whose own threads have all ended.
//!
//! A program may end thread by thread: `main` calls `pthread_exit`, and the C library calls `exit` when the last
//! thread has ended. It would not, since threads of this library are left. So one of these, the monitor thread of a
//! device, looks from time to time once the main thread has ended, and lets a thread call `exit` in place of the C
//! library.

use std::ffi::c_void;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use std::{fs, process, ptr};

use nix::sys::eventfd::EventFd;
use nix::sys::signal::SigSet;
use roce_io::process::Own;

use crate::process::background_thread;
use crate::process::fork::PerProcess;

/// Time between two looks whether other threads are left.
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Of this process; the state of one whose main thread has not ended is the default.
static STATE: PerProcess<State> = PerProcess::new();

#[derive(Debug, Default)]
struct State {
    /// Functions that the main thread runs when it ends have begun: it may run others of the program yet.
    is_main_ending: AtomicBool,
    /// A thread calls `exit`.
    is_exiting: AtomicBool,
    /// The signals that the main thread had blocked at its end.
    blocked: Mutex<Option<SigSet>>,
    /// What wakes the monitor threads.
    wakes: Mutex<Vec<Weak<Own<EventFd>>>>,
}

impl State {
    fn wakes(&self) -> MutexGuard<'_, Vec<Weak<Own<EventFd>>>> {
        self.wakes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn blocked(&self) -> MutexGuard<'_, Option<SigSet>> {
        self.blocked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The key of the main thread's mark, and 1 more; 0 before there is one.
static KEY: AtomicU32 = AtomicU32::new(0);

/// Lets the end of the main thread be noted, if the calling thread is that. Meant for the constructor of a shared
/// library that is never unloaded. Costs one of the C library's keys for data of threads. Further calls do nothing.
pub fn watch_main_thread() {
    if nix::unistd::gettid() != nix::unistd::Pid::this() || KEY.load(Ordering::Relaxed) != 0 {
        return;
    }
    let mut key = 0;
    // SAFETY: `key` is written by the first call. The functions live as long as the process.
    unsafe {
        if libc::pthread_key_create(&raw mut key, Some(note_end)) == 0 {
            KEY.store(key + 1, Ordering::Relaxed);
            mark_thread();
            // The thread that forks is the main thread of the child.
            libc::pthread_atfork(None, None, Some(mark_thread));
        }
    }
}

/// Marks the calling thread as the main thread.
unsafe extern "C" fn mark_thread() {
    let key = KEY.load(Ordering::Relaxed) - 1;
    // SAFETY: the key exists. The value is not read: it only is not null.
    unsafe { libc::pthread_setspecific(key, ptr::without_provenance(1)) };
}

/// Runs in the main thread when it ends and the process does not.
extern "C" fn note_end(_mark: *mut c_void) {
    let state = STATE.get();
    *state.blocked() = SigSet::thread_get_mask().ok();
    state.is_main_ending.store(true, Ordering::Release);
    for wake in state.wakes().iter().filter_map(Weak::upgrade).filter(|wake| wake.is_open()) {
        let _written = wake.write(1);
    }
}

/// Lets a monitor thread be woken when the main thread ends.
pub(crate) fn register(wake: &Arc<Own<EventFd>>) {
    let mut wakes = STATE.get().wakes();
    wakes.retain(|wake| wake.strong_count() > 0);
    wakes.push(Arc::downgrade(wake));
}

/// Returns true if the main thread of this process has ended, or is about to.
pub(crate) fn is_main_ending() -> bool {
    STATE.get().is_main_ending.load(Ordering::Acquire)
}

/// Lets `exit` be called if no thread of the process is left but those of this library. Meant for one of these.
pub(crate) fn exit_if_alone() {
    // A thread that has begun between two looks may be seen by neither.
    if !(is_main_ending() && is_alone() && is_alone()) {
        return;
    }
    if STATE.get().is_exiting.swap(true, Ordering::AcqRel) {
        return;
    }
    // In a thread as a program has them: handlers may use devices, which need this one, and a large stack.
    let mut thread = 0;
    // SAFETY: the function is one for threads, and needs nothing that ends.
    let result =
        unsafe { libc::pthread_create(&raw mut thread, ptr::null(), call_exit, ptr::null_mut()) };
    if result != 0 {
        call_exit(ptr::null_mut());
    }
}

extern "C" fn call_exit(_unused: *mut c_void) -> *mut c_void {
    let blocked = STATE.get().blocked().unwrap_or_else(SigSet::empty);
    let _restored = blocked.thread_set_mask();
    process::exit(0)
}

/// Returns true if the main thread has ended, and all others are this library's. Needs no descriptor: the process may
/// have none left.
fn is_alone() -> bool {
    // The kernel counts threads as links of the folder, a main thread that has ended too.
    let Ok(tasks) = fs::metadata("/proc/self/task") else { return false };
    let has_ended = || {
        // One that has ended has no program any more.
        let program = fs::read_link(format!("/proc/self/task/{}/exe", process::id()));
        program.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    };
    // Equal, since a kernel that counts otherwise must not end a process that goes on.
    tasks.nlink() == FOLDER_LINKS + 1 + background_thread::count() as u64 && has_ended()
}

/// Links of a folder without others in it.
const FOLDER_LINKS: u64 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_counted_as_links_of_their_folder_and_a_live_main_thread_has_a_program() {
        let (begin, began) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let links = || fs::metadata("/proc/self/task").unwrap().nlink();
        let thread = std::thread::spawn(move || {
            begin.send(()).unwrap();
            let _gone = ended.recv();
        });
        began.recv().unwrap();
        // This thread, the main thread, and the other.
        assert!(links() >= FOLDER_LINKS + 3, "{}", links());
        assert!(!is_alone() && !is_main_ending());
        drop(end);
        thread.join().unwrap();
    }
}
