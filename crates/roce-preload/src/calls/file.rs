//! Opening files.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;

use libc::{AT_FDCWD, mode_t};

use super::interpose;

// The C declarations of `open` and its relatives are variadic. Their third or fourth argument is
// passed on as it came, whether the caller gave it or not.
interpose! {
    fn open [] in AT_FDCWD, (flags: c_int, mode: mode_t) -> c_int, or -1;
    fn open64 [] in AT_FDCWD, (flags: c_int, mode: mode_t) -> c_int, or -1;
    fn __open_2 [] in AT_FDCWD, (flags: c_int) -> c_int, or -1;
    fn __open64_2 [] in AT_FDCWD, (flags: c_int) -> c_int, or -1;
    fn openat [folder: c_int] in folder, (flags: c_int, mode: mode_t) -> c_int, or -1;
    fn openat64 [folder: c_int] in folder, (flags: c_int, mode: mode_t) -> c_int, or -1;
    fn __openat_2 [folder: c_int] in folder, (flags: c_int) -> c_int, or -1;
    fn __openat64_2 [folder: c_int] in folder, (flags: c_int) -> c_int, or -1;
    fn openat2 [folder: c_int] in folder, (how: *const c_void, size: usize) -> c_int, or -1;
    fn fopen [] in AT_FDCWD, (mode: *const c_char) -> *mut c_void, or ptr::null_mut();
    fn fopen64 [] in AT_FDCWD, (mode: *const c_char) -> *mut c_void, or ptr::null_mut();
    fn freopen [] in AT_FDCWD, (mode: *const c_char, stream: *mut c_void) -> *mut c_void, or ptr::null_mut();
    fn freopen64 [] in AT_FDCWD, (mode: *const c_char, stream: *mut c_void) -> *mut c_void, or ptr::null_mut();
}
