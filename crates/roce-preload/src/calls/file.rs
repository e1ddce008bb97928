//! Opening files, and channels of rdma_cm.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;

use libc::{AT_FDCWD, mode_t};

use super::{channel, interpose, next_function};
use crate::view::{PathBuffer, set_errno};

interpose! {
    fn openat2 [folder: c_int] in folder, (how: *const c_void, size: usize) -> c_int, or -1;
    fn fopen [] in AT_FDCWD, (mode: *const c_char) -> *mut c_void, or ptr::null_mut();
    fn fopen64 [] in AT_FDCWD, (mode: *const c_char) -> *mut c_void, or ptr::null_mut();
    fn freopen [] in AT_FDCWD, (mode: *const c_char, stream: *mut c_void) -> *mut c_void, or ptr::null_mut();
    fn freopen64 [] in AT_FDCWD, (mode: *const c_char, stream: *mut c_void) -> *mut c_void, or ptr::null_mut();
}

/// Defines functions that open files. `[a: T]` is the parameter before the path, where the folder
/// is; `(a: T)` is what follows, of which the first are the flags.
macro_rules! interpose_opening {
    ($(
        fn $name:ident [$($folder:ident)?] ($flags:ident: c_int $(, $mode:ident: mode_t)?);
    )*) => {$(
        /// As in the C library, with paths of the view, and channels of rdma_cm.
        ///
        /// # Safety
        /// As for the C library's function.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(
            $($folder: c_int,)?
            path: *const c_char,
            $flags: c_int,
            $($mode: mode_t)?
        ) -> c_int {
            type Function = unsafe extern "C" fn(
                $(interpose_opening!(@folder $folder),)?
                *const c_char,
                c_int,
                $(interpose_opening!(@mode $mode))?
            ) -> c_int;
            // SAFETY: the caller's promise.
            if let Some(fd) = unsafe { channel::open(path, $flags) } {
                return fd;
            }
            let Some(next) = next_function!($name, Function) else {
                set_errno(libc::ENOSYS);
                return -1;
            };
            #[allow(unused_mut, unused_assignments)]
            let mut at = libc::AT_FDCWD;
            $(at = $folder;)?
            let mut buffer = PathBuffer::new();
            // SAFETY: the caller promises what the C library's function requires, and the path that
            // replaces theirs lives until the end of the call.
            unsafe { next($($folder,)? buffer.serve(at, path), $flags, $($mode)?) }
        }
    )*};
    (@folder $name:ident) => { c_int };
    (@mode $name:ident) => { mode_t };
}

// The C declarations of `open` and its relatives are variadic. Their third or fourth argument is
// passed on as it came, whether the caller gave it or not.
interpose_opening! {
    fn open [] (flags: c_int, mode: mode_t);
    fn open64 [] (flags: c_int, mode: mode_t);
    fn __open_2 [] (flags: c_int);
    fn __open64_2 [] (flags: c_int);
    fn openat [folder] (flags: c_int, mode: mode_t);
    fn openat64 [folder] (flags: c_int, mode: mode_t);
    fn __openat_2 [folder] (flags: c_int);
    fn __openat64_2 [folder] (flags: c_int);
}
