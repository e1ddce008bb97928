//! Functions that do not exist here: they fail as those of a device without the feature.

use std::ffi::{c_int, c_void};

use libc::EOPNOTSUPP;

use crate::errno;

/// Refuses a function that returns an `errno` value.
pub(crate) extern "C" fn code() -> c_int {
    errno::failed(EOPNOTSUPP)
}

/// Refuses a function that returns −1.
pub(crate) extern "C" fn minus_one() -> c_int {
    errno::set(EOPNOTSUPP);
    -1
}

/// Refuses a function that returns a pointer.
pub(crate) extern "C" fn null() -> *mut c_void {
    errno::null(EOPNOTSUPP)
}

/// Does nothing.
pub(crate) extern "C" fn nothing() {}

/// Succeeds without doing anything.
pub(crate) extern "C" fn success() -> c_int {
    0
}

/// `ibv_is_fork_initialized`: a child's copy of memory is its own, as the processor copies the data.
pub(crate) extern "C" fn fork_is_unneeded() -> c_int {
    roce_abi::IBV_FORK_UNNEEDED
}
