//! Reading and entering folders.

use std::ffi::{c_int, c_void};
use std::ptr;

use libc::AT_FDCWD;

use super::interpose;

interpose! {
    fn opendir [] in AT_FDCWD, () -> *mut c_void, or ptr::null_mut();
    fn chdir [] in AT_FDCWD, () -> c_int, or -1;
    fn scandir [] in AT_FDCWD, (list: *mut c_void, filter: *const c_void, compare: *const c_void) -> c_int, or -1;
    fn scandir64 [] in AT_FDCWD, (list: *mut c_void, filter: *const c_void, compare: *const c_void) -> c_int, or -1;
    fn scandirat [folder: c_int] in folder, (list: *mut c_void, filter: *const c_void, compare: *const c_void) -> c_int, or -1;
    fn scandirat64 [folder: c_int] in folder, (list: *mut c_void, filter: *const c_void, compare: *const c_void) -> c_int, or -1;
}
