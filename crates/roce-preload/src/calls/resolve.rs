//! Resolving links.

use std::ffi::{c_char, c_int};
use std::ptr;

use libc::{AT_FDCWD, ssize_t};

use super::{interpose, next_function};
use crate::view::{self, PathBuffer};

interpose! {
    fn readlink [] in AT_FDCWD, (out: *mut c_char, size: usize) -> ssize_t, or -1;
    fn __readlink_chk [] in AT_FDCWD, (out: *mut c_char, size: usize, space: usize) -> ssize_t, or -1;
    fn readlinkat [folder: c_int] in folder, (out: *mut c_char, size: usize) -> ssize_t, or -1;
    fn __readlinkat_chk [folder: c_int] in folder, (out: *mut c_char, size: usize, space: usize) -> ssize_t, or -1;
}

/// Defines calls that return a resolved path, without the folder of the view.
macro_rules! interpose_resolving {
    ($(fn $name:ident ($($after:ident: $after_type:ty),*);)*) => {$(
        /// As in the C library, with paths of the view.
        ///
        /// # Safety
        /// As for the C library's function.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(
            path: *const c_char,
            $($after: $after_type),*
        ) -> *mut c_char {
            type Function = unsafe extern "C" fn(*const c_char, $($after_type),*) -> *mut c_char;
            let Some(next) = next_function!($name, Function) else {
                view::set_errno(libc::ENOSYS);
                return ptr::null_mut();
            };
            let mut buffer = PathBuffer::new();
            // SAFETY: the caller promises what the C library's function requires; its result is
            // null or a path that belongs to the caller.
            unsafe {
                let resolved = next(buffer.serve(AT_FDCWD, path), $($after),*);
                view::hide_root(resolved);
                resolved
            }
        }
    )*};
}

interpose_resolving! {
    fn realpath(out: *mut c_char);
    fn __realpath_chk(out: *mut c_char, space: usize);
    fn canonicalize_file_name();
}
