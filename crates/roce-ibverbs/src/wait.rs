//! Waiting on a descriptor as `read` does.

use std::ffi::c_int;
use std::os::fd::BorrowedFd;

use libc::{EAGAIN, EINTR, EIO};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout};

/// Waits until the descriptor is readable. The caller takes what it finds and calls again if it finds
/// nothing.
///
/// # Errors
/// `EAGAIN` if the program has made the descriptor non-blocking, and `EINTR` where a signal would have
/// ended a `read`.
pub(crate) fn until_readable(fd: BorrowedFd<'_>) -> Result<(), c_int> {
    if is_non_blocking(fd) {
        return Err(EAGAIN);
    }
    loop {
        let mut set = [PollFd::new(fd, PollFlags::POLLIN)];
        match nix::poll::poll(&mut set, PollTimeout::NONE) {
            Ok(_) => return Ok(()),
            Err(Errno::EINTR) if signals_restart_calls() => {}
            Err(Errno::EINTR) => return Err(EINTR),
            Err(_) => return Err(EIO),
        }
    }
}

/// Returns true if the program has made the descriptor non-blocking.
pub(crate) fn is_non_blocking(fd: BorrowedFd<'_>) -> bool {
    let flags = nix::fcntl::fcntl(fd, nix::fcntl::FcntlArg::F_GETFL).unwrap_or(0);
    flags & libc::O_NONBLOCK != 0
}

/// Signals that a thread causes by what it executes. Their handlers end no wait.
const FAULTS: [c_int; 7] = [
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGABRT,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGSEGV,
    libc::SIGSYS,
];

/// Returns true if every handler of the program was installed with `SA_RESTART`. A `read` goes on
/// after such a handler, `poll` never does. Handlers of faults do not count: crash reporters and
/// sanitizers install them, mostly without the flag.
fn signals_restart_calls() -> bool {
    (1..=libc::SIGRTMAX()).filter(|signal| !FAULTS.contains(signal)).all(|signal| {
        let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: only asks for the present action.
        let known = unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) } == 0;
        // SAFETY: zeroed, and filled in if the call succeeded.
        let action = unsafe { action.assume_init() };
        let is_handled = ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction);
        !known || !is_handled || action.sa_flags & libc::SA_RESTART != 0
    })
}
