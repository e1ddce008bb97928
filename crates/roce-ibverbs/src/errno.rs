//! Errors as C programs see them: `errno` values, those that rdma-core and the kernel give.

use std::ffi::c_int;
use std::{io, ptr};

use libc::{
    EADDRINUSE, EAGAIN, EBADF, EBUSY, EFAULT, EHOSTUNREACH, EINVAL, EIO, EMFILE, ENETUNREACH,
    ENFILE, ENOBUFS, ENODATA, ENODEV, ENOMEM, EPERM,
};
use roce_verbs::{AttachError, Error, OpenError, PostError, RouteError, WrError};

/// Sets the calling thread's `errno`.
pub(crate) fn set(errno: c_int) {
    // SAFETY: the C library returns the address of the calling thread's variable.
    unsafe { *libc::__errno_location() = errno };
}

/// Sets `errno` and returns a null pointer.
pub(crate) fn null<T>(errno: c_int) -> *mut T {
    set(errno);
    ptr::null_mut()
}

/// Sets `errno` and returns its value, as functions do that return an error number: programs print
/// `errno` after them, too. Not for the outcomes that are no failure of a poll.
pub(crate) fn failed(errno: c_int) -> c_int {
    set(errno);
    errno
}

/// Returns 0, or the `errno` value of a failure after [`failed`].
pub(crate) fn code(result: Result<(), Error>) -> c_int {
    code_of(result.map_err(|error| of(&error)))
}

/// As [`code`], of an `errno` value.
pub(crate) fn code_of(result: Result<(), c_int>) -> c_int {
    result.map_or_else(failed, |()| 0)
}

/// Returns the `errno` value of an error.
pub(crate) fn of(error: &Error) -> c_int {
    match error {
        Error::Forked => EIO,
        Error::Injected(fault) => fault.errno.code(),
        // As for a descriptor that was closed.
        Error::ShutDown => EBADF,
        Error::Attach(AttachError::TooManyGroups { .. } | AttachError::TooManyMembers { .. }) => {
            ENOMEM
        }
        Error::JoinGroup { source, .. } => source.raw_os_error().unwrap_or(EIO),
        Error::System(error) => error.raw_os_error().unwrap_or(EIO),
        Error::Register { source, .. } => source.raw_os_error().unwrap_or(EFAULT),
        Error::Open(OpenError::NotPermitted { .. } | OpenError::Xdp(_)) => EPERM,
        Error::Open(OpenError::Os { source, .. }) => scarcity(source).unwrap_or(ENODEV),
        Error::Open(_) => ENODEV,
        Error::Port(_) => EADDRINUSE,
        Error::OpenedDifferently { .. } | Error::WindowsBound { .. } => EBUSY,
        Error::TooManyWindows | Error::OutOfMemory => ENOMEM,
        Error::Route(RouteError::NoRoute { .. }) => ENETUNREACH,
        Error::Route(RouteError::NoNeighbour { .. }) => EHOSTUNREACH,
        Error::Route(RouteError::Netlink(source)) => scarcity(source).unwrap_or(EIO),
        Error::NoSuchGid { index, .. } if usize::from(*index) < roce_verbs::GID_TABLE_LEN => {
            ENODATA
        }
        _ => EINVAL,
    }
}

/// Returns the `errno` value of an error of the kernel if that says that something has run out: a program may
/// give something up and try again.
fn scarcity(error: &io::Error) -> Option<c_int> {
    let code = error.raw_os_error()?;
    [ENOMEM, ENOBUFS, EMFILE, ENFILE, EAGAIN].contains(&code).then_some(code)
}

/// Returns the `errno` value of a refused work request.
pub(crate) fn of_post(error: &WrError) -> c_int {
    match error {
        WrError::Forked => EIO,
        WrError::Injected(fault) => fault.errno.code(),
        WrError::Post(
            PostError::SendQueueFull { .. }
            | PostError::ReceiveQueueFull { .. }
            | PostError::OutOfMemory,
        ) => ENOMEM,
        _ => EINVAL,
    }
}
