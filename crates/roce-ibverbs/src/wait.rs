//! Waiting as `read` does.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use libc::{EAGAIN, EINTR, EIO, POLLIN, nfds_t, pollfd};
use roce_verbs::Device;

use crate::cancellation::Cancellability;
use crate::errno;

/// Most descriptors of a sleep: that of the events, and those of the device (two or fewer for each of
/// its interfaces).
const MAX_FDS: usize = 8;

mod c {
    use super::{c_int, nfds_t, pollfd};

    // As in the `libc` crate, except that it may unwind: it is a cancellation point.
    unsafe extern "C-unwind" {
        pub(super) fn poll(set: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
    }
}

/// The outcome of one attempt to fetch an event.
pub(crate) enum Attempt {
    /// There was one.
    Fetched,
    /// There is none; the thread sleeps and tries again.
    Sleep(Sleep),
    /// The call fails with this `errno` value.
    Failed(c_int),
}

/// A sleep until any of some descriptors is readable.
#[derive(Clone, Copy)]
pub(crate) struct Sleep {
    set: [pollfd; MAX_FDS],
    count: nfds_t,
    timeout_millis: c_int,
}

impl Sleep {
    fn without_end() -> Self {
        let unused = pollfd { fd: -1, events: 0, revents: 0 };
        Self { set: [unused; MAX_FDS], count: 0, timeout_millis: -1 }
    }
}

/// How the sleep before an attempt has ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Woken {
    /// It is the first attempt.
    Not,
    /// A descriptor was readable, or the time over.
    Up,
    /// A signal handler has run.
    BySignal,
    /// The kernel refused the sleep, with this `errno` value.
    Refused(c_int),
}

/// Returns 0 when `attempt` has fetched an event, and -1, with `errno` set, when it fails. Between two
/// attempts the thread sleeps and is a cancellation point, as in `read`.
///
/// A cancelled thread is unwound from the sleep. So neither this function, nor what it captures, nor any
/// frame below up to the program has a destructor: all of them are `extern "C-unwind"` or inlined.
#[inline]
pub(crate) fn repeat<A: FnMut(Woken) -> Attempt>(mut attempt: A) -> c_int {
    const { assert!(!std::mem::needs_drop::<A>()) };
    let mut woken = Woken::Not;
    loop {
        let cancellability = Cancellability::suspend();
        let outcome = attempt(woken);
        if let Attempt::Failed(errno) = outcome {
            errno::set(errno);
        }
        cancellability.resume();
        let mut sleep = match outcome {
            Attempt::Fetched => return 0,
            Attempt::Failed(_) => return -1,
            Attempt::Sleep(sleep) => sleep,
        };
        // SAFETY: `count` entries of the array are filled in. Nothing here has a destructor.
        let count = unsafe { c::poll(sleep.set.as_mut_ptr(), sleep.count, sleep.timeout_millis) };
        woken = match (count, last_errno()) {
            (0.., _) => Woken::Up,
            (_, EINTR) => Woken::BySignal,
            (_, errno) => Woken::Refused(errno),
        };
    }
}

fn last_errno() -> c_int {
    // SAFETY: the C library returns the address of the calling thread's variable.
    unsafe { *libc::__errno_location() }
}

/// Returns the sleep after an attempt that has found nothing, until `fd` is readable. The devices are
/// driven meanwhile: `look_again` looks for an event after this has done so.
///
/// # Errors
/// `EAGAIN` if the program has made the descriptor non-blocking, and `EINTR` where a signal would have
/// ended a `read`.
pub(crate) fn after_nothing(
    woken: Woken,
    fd: BorrowedFd<'_>,
    devices: &[Device],
    look_again: &mut dyn FnMut() -> bool,
) -> Attempt {
    if let Some(errno) = failure_of(woken) {
        return Attempt::Failed(errno);
    }
    let beside: Vec<_> = devices.iter().map(Device::prepare_sleep).collect();
    if look_again() {
        return Attempt::Fetched;
    }
    if is_non_blocking(fd) {
        return Attempt::Failed(EAGAIN);
    }
    let mut sleep = Sleep::without_end();
    let of_devices = beside.iter().flat_map(|set| set.fds).map(AsRawFd::as_raw_fd);
    let fds = std::iter::once(fd.as_raw_fd()).chain(of_devices);
    for (entry, fd) in sleep.set.iter_mut().zip(fds) {
        *entry = pollfd { fd, events: POLLIN, revents: 0 };
        sleep.count += 1;
    }
    if let Some(limit) = beside.iter().filter_map(|set| set.limit).min() {
        // Rounded up: a sleep of 0 ms before each timer would spin.
        let millis = limit.as_nanos().div_ceil(Duration::from_millis(1).as_nanos());
        sleep.timeout_millis = c_int::try_from(millis).unwrap_or(c_int::MAX);
    }
    Attempt::Sleep(sleep)
}

/// Returns a sleep that only a signal or a cancellation ends.
pub(crate) fn for_ever(woken: Woken) -> Attempt {
    failure_of(woken).map_or(Attempt::Sleep(Sleep::without_end()), Attempt::Failed)
}

/// Returns the `errno` value with which a call fails after a sleep.
fn failure_of(woken: Woken) -> Option<c_int> {
    match woken {
        Woken::BySignal if !signals_restart_calls() => Some(EINTR),
        Woken::Refused(_) => Some(EIO),
        _ => None,
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
