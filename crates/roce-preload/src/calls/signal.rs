//! Actions of signals: the handler of a library that lets its accesses to memory fail stays in front of
//! the program's.
//!
//! `libibverbs.so.1` handles SIGSEGV and SIGBUS in its copies, and carries out the program's action
//! in all other cases. A program that chose an action later would replace that handler. So the
//! calls for signals that the library handles go to the library, which keeps the program's action;
//! all others go on to the C library.

use std::ffi::c_int;
use std::mem::{MaybeUninit, transmute};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use libc::{SA_NODEFER, SA_RESETHAND, SA_RESTART, SIG_ERR, SIG_IGN, sighandler_t};

use super::next_function;
use crate::view::set_errno;

/// `sigaction`.
type Sigaction = unsafe extern "C" fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int;
/// `signal`, and calls like it.
type Signal = unsafe extern "C" fn(c_int, sighandler_t) -> sighandler_t;

/// The [`Sigaction`] of the library that handles SIGSEGV and SIGBUS, as a number; 0 without one.
static HOOK: AtomicUsize = AtomicUsize::new(0);

/// What `sigset` takes and returns for a signal that is blocked.
const SIG_HOLD: sighandler_t = 2;

/// Makes a function receive the calls of `sigaction` for SIGSEGV and SIGBUS, also those that other calls
/// stand for. Returns the function that received them before; null where the C library has none.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn roce_preload_hook_sigaction(hook: Sigaction) -> Option<Sigaction> {
    let real = next_function!(sigaction, Sigaction)?;
    match HOOK.swap(hook as usize, Ordering::AcqRel) {
        0 => Some(real),
        // SAFETY: stored by the line above, from a function of this type.
        before => Some(unsafe { transmute::<usize, Sigaction>(before) }),
    }
}

/// Returns the library's function for a signal that it handles.
fn hook_of(signal: c_int) -> Option<Sigaction> {
    let is_handled = matches!(signal, libc::SIGSEGV | libc::SIGBUS);
    let hook = if is_handled { HOOK.load(Ordering::Acquire) } else { 0 };
    // SAFETY: null is the niche of `Option`; stored by `roce_preload_hook_sigaction`.
    unsafe { transmute::<usize, Option<Sigaction>>(hook) }
}

/// As in the C library.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    let next = hook_of(signal).or_else(|| next_function!(sigaction, Sigaction));
    let Some(next) = next else {
        set_errno(libc::ENOSYS);
        return -1;
    };
    // SAFETY: the caller's promise.
    unsafe { next(signal, new, old) }
}

/// Gives a handled signal an action by its library, and returns the handler of before.
///
/// # Safety
/// As for `sigaction`.
unsafe fn set(
    hook: Sigaction,
    signal: c_int,
    handler: sighandler_t,
    flags: c_int,
    masks_itself: bool,
) -> sighandler_t {
    let (mut new, mut old) = (MaybeUninit::<libc::sigaction>::zeroed(), MaybeUninit::zeroed());
    // SAFETY: zeros are a valid action and an empty set; the caller's promise for the handler.
    unsafe {
        let action = &mut *new.as_mut_ptr();
        (action.sa_sigaction, action.sa_flags) = (handler, flags);
        if masks_itself {
            libc::sigaddset(&raw mut action.sa_mask, signal);
        }
        match hook(signal, new.as_ptr(), old.as_mut_ptr()) {
            0 => old.assume_init().sa_sigaction,
            _ => SIG_ERR,
        }
    }
}

/// Defines calls that choose a handler.
macro_rules! interpose_handlers {
    ($(fn $name:ident: flags $flags:expr, masks itself $masks_itself:expr;)*) => {$(
        /// As in the C library.
        ///
        /// # Safety
        /// As for the C library's function.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(
            signal: c_int,
            handler: sighandler_t,
        ) -> sighandler_t {
            if let Some(hook) = hook_of(signal) {
                // SAFETY: the caller's promise.
                return unsafe { set(hook, signal, handler, $flags, $masks_itself) };
            }
            let Some(next) = next_function!($name, Signal) else {
                set_errno(libc::ENOSYS);
                return SIG_ERR;
            };
            // SAFETY: the caller's promise.
            unsafe { next(signal, handler) }
        }
    )*};
}

interpose_handlers! {
    fn signal: flags SA_RESTART, masks itself true;
    fn bsd_signal: flags SA_RESTART, masks itself true;
    fn ssignal: flags SA_RESTART, masks itself true;
    fn sysv_signal: flags SA_RESETHAND | SA_NODEFER, masks itself false;
    fn __sysv_signal: flags SA_RESETHAND | SA_NODEFER, masks itself false;
}

/// As in the C library.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sigset(signal: c_int, handler: sighandler_t) -> sighandler_t {
    let Some(hook) = hook_of(signal) else {
        let Some(next) = next_function!(sigset, Signal) else {
            set_errno(libc::ENOSYS);
            return SIG_ERR;
        };
        // SAFETY: the caller's promise.
        return unsafe { next(signal, handler) };
    };
    // SAFETY: the sets and actions are the stack's, where zeros are valid; the caller's promise for the
    // handler.
    unsafe {
        let (mut own, mut before) = (MaybeUninit::zeroed(), MaybeUninit::zeroed());
        libc::sigaddset(own.as_mut_ptr(), signal);
        let how = if handler == SIG_HOLD { libc::SIG_BLOCK } else { libc::SIG_UNBLOCK };
        let old = if handler == SIG_HOLD {
            let mut old = MaybeUninit::<libc::sigaction>::zeroed();
            match hook(signal, ptr::null(), old.as_mut_ptr()) {
                0 => old.assume_init().sa_sigaction,
                _ => SIG_ERR,
            }
        } else {
            set(hook, signal, handler, 0, false)
        };
        if old == SIG_ERR {
            return old;
        }
        libc::pthread_sigmask(how, own.as_ptr(), before.as_mut_ptr());
        if libc::sigismember(before.as_ptr(), signal) == 1 { SIG_HOLD } else { old }
    }
}

/// As in the C library.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sigignore(signal: c_int) -> c_int {
    if let Some(hook) = hook_of(signal) {
        // SAFETY: an action without a function.
        let failed = unsafe { set(hook, signal, SIG_IGN, 0, false) } == SIG_ERR;
        return if failed { -1 } else { 0 };
    }
    let Some(next) = next_function!(sigignore, unsafe extern "C" fn(c_int) -> c_int) else {
        set_errno(libc::ENOSYS);
        return -1;
    };
    // SAFETY: the caller's promise.
    unsafe { next(signal) }
}
