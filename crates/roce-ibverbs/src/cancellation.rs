//! Cancellation of the program's threads (`pthread_cancel`).
//!
//! A cancelled thread ends inside a call of the C library that is a cancellation point, and its stack
//! is unwound. Rust permits that only over frames without destructors, so a thread is cancellable in
//! this library only where it owns nothing: in the sleeps of [`wait`](crate::wait). In every other
//! function that may call the kernel cancellation is off, and takes effect at the program's next
//! cancellation point.

use std::ffi::c_int;

use crate::{errno, memory_reserve};

mod c {
    use std::ffi::c_int;

    pub(super) const PTHREAD_CANCEL_DISABLE: c_int = 1;
    pub(super) const PTHREAD_CANCEL_DEFERRED: c_int = 0;

    // The `libc` crate declares none of these. They unwind where a thread with the asynchronous
    // cancellation type was cancelled before.
    unsafe extern "C-unwind" {
        pub(super) fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
        pub(super) fn pthread_setcanceltype(kind: c_int, before: *mut c_int) -> c_int;
    }
}

/// Makes the calling thread not cancellable, and returns its state before.
#[inline]
fn disable() -> c_int {
    let mut before = 0;
    // SAFETY: writes the state to `before`; cannot fail with a valid state, nor unwind, as it makes no
    // thread cancellable.
    unsafe { c::pthread_setcancelstate(c::PTHREAD_CANCEL_DISABLE, &mut before) };
    before
}

/// Sets the state that [`disable`] has returned.
#[inline]
fn restore(state: c_int) {
    // SAFETY: a state of `disable`.
    unsafe { c::pthread_setcancelstate(state, std::ptr::null_mut()) };
}

/// The cancellability of a thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cancellability {
    state: c_int,
    kind: c_int,
}

impl Cancellability {
    /// Makes the calling thread not cancellable, and returns its cancellability before.
    pub(crate) fn suspend() -> Self {
        let state = disable();
        let mut kind = 0;
        // SAFETY: writes the type to `kind`; cannot fail with a valid type, nor unwind, as the thread
        // is not cancellable.
        unsafe { c::pthread_setcanceltype(c::PTHREAD_CANCEL_DEFERRED, &mut kind) };
        Self { state, kind }
    }

    /// Restores it. A thread of the asynchronous cancellation type that was cancelled meanwhile ends
    /// here: the caller owns nothing.
    pub(crate) fn resume(self) {
        restore(self.state);
        // The type second: where setting the state ends a thread, glibc 2.36 gives it no result.
        // SAFETY: a type of `suspend`.
        unsafe { c::pthread_setcanceltype(self.kind, std::ptr::null_mut()) };
    }
}

/// Makes the calling thread not cancellable for its lifetime.
///
/// A thread of the asynchronous cancellation type may by POSIX not call functions such as those of
/// this library.
#[derive(Debug)]
pub(crate) struct Uncancellable {
    before: c_int,
}

impl Uncancellable {
    /// Begins.
    #[inline]
    pub(crate) fn begin() -> Self {
        Self { before: disable() }
    }

    /// Begins, if memory is left for a new object; sets `errno` otherwise.
    pub(crate) fn with_memory() -> Option<Self> {
        let begun = Self::begin();
        memory_reserve::check().map(|()| begun).inspect_err(|errno| errno::set(*errno)).ok()
    }
}

impl Drop for Uncancellable {
    #[inline]
    fn drop(&mut self) {
        restore(self.before);
    }
}
