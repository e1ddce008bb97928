//! Asking about files.

use std::ffi::{c_char, c_int, c_uint, c_void};

use libc::{AT_FDCWD, ssize_t};

use super::interpose;

interpose! {
    fn stat [] in AT_FDCWD, (buffer: *mut c_void) -> c_int, or -1;
    fn stat64 [] in AT_FDCWD, (buffer: *mut c_void) -> c_int, or -1;
    fn lstat [] in AT_FDCWD, (buffer: *mut c_void) -> c_int, or -1;
    fn lstat64 [] in AT_FDCWD, (buffer: *mut c_void) -> c_int, or -1;
    fn fstatat [folder: c_int] in folder, (buffer: *mut c_void, flags: c_int) -> c_int, or -1;
    fn fstatat64 [folder: c_int] in folder, (buffer: *mut c_void, flags: c_int) -> c_int, or -1;
    fn statx [folder: c_int] in folder, (flags: c_int, mask: c_uint, buffer: *mut c_void) -> c_int, or -1;
    fn access [] in AT_FDCWD, (mode: c_int) -> c_int, or -1;
    fn euidaccess [] in AT_FDCWD, (mode: c_int) -> c_int, or -1;
    fn eaccess [] in AT_FDCWD, (mode: c_int) -> c_int, or -1;
    fn faccessat [folder: c_int] in folder, (mode: c_int, flags: c_int) -> c_int, or -1;
}

// Programs built with a C library before 2.33 call these for `stat` and its relatives.
interpose! {
    fn __xstat [version: c_int] in AT_FDCWD, (buffer: *mut c_void) -> c_int, or -1;
    fn __xstat64 [version: c_int] in AT_FDCWD, (buffer: *mut c_void) -> c_int, or -1;
    fn __lxstat [version: c_int] in AT_FDCWD, (buffer: *mut c_void) -> c_int, or -1;
    fn __lxstat64 [version: c_int] in AT_FDCWD, (buffer: *mut c_void) -> c_int, or -1;
    fn __fxstatat [version: c_int, folder: c_int] in folder, (buffer: *mut c_void, flags: c_int) -> c_int, or -1;
    fn __fxstatat64 [version: c_int, folder: c_int] in folder, (buffer: *mut c_void, flags: c_int) -> c_int, or -1;
}

// `ls -l` asks for these and reports an error if the file does not exist for them.
interpose! {
    fn getxattr [] in AT_FDCWD, (name: *const c_char, value: *mut c_void, size: usize) -> ssize_t, or -1;
    fn lgetxattr [] in AT_FDCWD, (name: *const c_char, value: *mut c_void, size: usize) -> ssize_t, or -1;
    fn listxattr [] in AT_FDCWD, (list: *mut c_char, size: usize) -> ssize_t, or -1;
    fn llistxattr [] in AT_FDCWD, (list: *mut c_char, size: usize) -> ssize_t, or -1;
}
