//! Patterns.

use std::ffi::{c_char, c_int, c_void};

use libc::{AT_FDCWD, glob_t};

use super::next_function;
use crate::view::{self, PathBuffer};

/// Defines `glob` and `glob64`, whose structures are the same on 64-bit systems.
macro_rules! interpose_glob {
    ($($name:ident),*) => {$(
        /// As in the C library, with paths of the view.
        ///
        /// # Safety
        /// As for the C library's function.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(
            pattern: *const c_char,
            flags: c_int,
            failed: *const c_void,
            found: *mut glob_t,
        ) -> c_int {
            type Function = unsafe extern "C" fn(
                *const c_char,
                c_int,
                *const c_void,
                *mut glob_t,
            ) -> c_int;
            let Some(next) = next_function!($name, Function) else {
                return libc::GLOB_ABORTED;
            };
            let mut buffer = PathBuffer::new();
            // SAFETY: the caller promises what the C library's function requires. `found` is set
            // where that succeeds.
            unsafe {
                let served = buffer.serve(AT_FDCWD, pattern);
                let result = next(served, flags, failed, found);
                if result == 0 && served != pattern {
                    hide_roots(&*found, flags);
                }
                result
            }
        }
    )*};
}

interpose_glob!(glob, glob64);

/// Removes the folder of the view from the paths that were found.
///
/// # Safety
/// `found` is the result of a successful `glob` with these flags.
unsafe fn hide_roots(found: &glob_t, flags: c_int) {
    let reserved = if flags & libc::GLOB_DOOFFS == 0 { 0 } else { found.gl_offs };
    for number in 0..found.gl_pathc {
        // SAFETY: the list has that many paths behind the reserved entries, each of which ends with
        // a zero and belongs to the caller.
        unsafe { view::hide_root(*found.gl_pathv.add(reserved + number)) };
    }
}
