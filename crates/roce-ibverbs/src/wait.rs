//! Waiting as `read` does.
//!
//! A thread sleeps in poll(2), on the descriptor of the events and on that of the end of the device's
//! threads. A signal ends that whether its handler has `SA_RESTART` or not, so that the flags of the
//! process's handlers decide what becomes of the call. Where they differ, the thread sleeps in a read
//! of the descriptor of the events, which the kernel goes on with after the one and ends after the other.
//! The end of the device's threads, at `exit`, does not wake it then: what drives the device from there on
//! are the calls that other threads of the program make.
//!
//! This holds for handlers that are there when the sleep begins, as seen in the last 10 ms; without `/proc`, and
//! in sleeps that begin after `exit`, the thread is in poll(2) always, and each handler ends the call where any
//! has no `SA_RESTART`.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use libc::{EAGAIN, EINTR, EIO, POLLIN, c_void, nfds_t, pollfd, ssize_t};
use nix::time::{ClockId, clock_gettime};
use roce_verbs::{Device, may_events_be_read};

use crate::cancellation::Cancellability;
use crate::errno;

/// Most descriptors of a sleep: that of the events, and those of the device (two or fewer for each of
/// its interfaces).
const MAX_FDS: usize = 8;

mod c {
    use super::{c_int, c_void, nfds_t, pollfd, ssize_t};

    // As in the `libc` crate, except that they may unwind: they are cancellation points.
    unsafe extern "C-unwind" {
        pub(super) fn poll(set: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
        pub(super) fn read(fd: c_int, buffer: *mut c_void, len: usize) -> ssize_t;
        pub(super) fn recv(fd: c_int, buffer: *mut c_void, len: usize, flags: c_int) -> ssize_t;
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
    by: By,
}

/// The call that sleeps.
#[derive(Clone, Copy)]
enum By {
    Poll,
    /// `read` of a byte of a descriptor.
    Read(RawFd),
    /// As [`Read`](Self::Read), of a socket, and the byte stays there.
    Peek(RawFd),
}

/// What the descriptor of events is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A pipe, of which a sleep may take a byte: see [`Woken::ByRead`].
    Pipe,
    /// A socket.
    Socket,
}

impl Sleep {
    fn without_end() -> Self {
        let unused = pollfd { fd: -1, events: 0, revents: 0 };
        Self { set: [unused; MAX_FDS], count: 0, timeout_millis: -1, by: By::Poll }
    }
}

/// How the sleep before an attempt has ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Woken {
    /// It is the first attempt.
    Not,
    /// A descriptor was readable, or the time over.
    Up,
    /// The sleep has taken a byte of the descriptor, which stands for an event.
    ByRead,
    /// A signal handler has run, in a sleep by poll(2).
    BySignal,
    /// A signal handler without `SA_RESTART` has run, in a sleep by read(2).
    Interrupted,
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
        let mut byte = 0u8;
        let buffer = (&raw mut byte).cast();
        // SAFETY: `count` entries of the array are filled in, and the buffer has a byte. Nothing here has a
        // destructor.
        let result = unsafe {
            match sleep.by {
                By::Poll => {
                    c::poll(sleep.set.as_mut_ptr(), sleep.count, sleep.timeout_millis) as ssize_t
                }
                By::Read(fd) => c::read(fd, buffer, 1),
                By::Peek(fd) => c::recv(fd, buffer, 1, libc::MSG_PEEK),
            }
        };
        woken = match (result, sleep.by, last_errno()) {
            (0.., By::Read(_), _) => Woken::ByRead,
            (0.., ..) => Woken::Up,
            (_, By::Poll, EINTR) => Woken::BySignal,
            (_, _, EINTR) => Woken::Interrupted,
            (.., errno) => Woken::Refused(errno),
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
    (fd, kind): (BorrowedFd<'_>, Kind),
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
    let may_read = kind != Kind::Pipe || may_events_be_read();
    if may_read && beside.iter().all(|set| set.is_driven) && handlers_differ() {
        let fd = fd.as_raw_fd();
        sleep.by = if kind == Kind::Pipe { By::Read(fd) } else { By::Peek(fd) };
        return Attempt::Sleep(sleep);
    }
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
        Woken::BySignal if Handlers::of_process().interrupts => Some(EINTR),
        Woken::Interrupted => Some(EINTR),
        Woken::Refused(EAGAIN) => Some(EAGAIN),
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

/// How the handlers of the program were installed. Those of faults do not count: crash reporters and
/// sanitizers install them, mostly without `SA_RESTART`.
#[derive(Clone, Copy, Default)]
struct Handlers {
    /// There is one with `SA_RESTART`, after which a `read` goes on.
    restarts: bool,
    /// There is one without.
    interrupts: bool,
}

impl Handlers {
    fn of_process() -> Self {
        let mut handlers = Self::default();
        for signal in (1..=libc::SIGRTMAX()).filter(|signal| !FAULTS.contains(signal)) {
            let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
            // SAFETY: only asks for the present action.
            let known = unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
            // SAFETY: zeroed, and filled in if the call succeeded.
            let action = unsafe { action.assume_init() };
            let is_handled = ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction);
            if known == 0 && is_handled {
                let restarts = action.sa_flags & libc::SA_RESTART != 0;
                handlers.restarts |= restarts;
                handlers.interrupts |= !restarts;
            }
        }
        handlers
    }
}

/// How long the answer of [`handlers_differ`] is used again, in nanoseconds: it takes some 60 system calls.
const MAX_AGE_NANOS: u64 = 10_000_000;

/// Returns true if some handlers of the program have `SA_RESTART` and some have not.
fn handlers_differ() -> bool {
    static DIFFER: AtomicBool = AtomicBool::new(false);
    static ASKED_AT: AtomicU64 = AtomicU64::new(0);
    let now = nanos_of_clock();
    let asked_at = ASKED_AT.load(Ordering::Acquire);
    if asked_at != 0 && now.saturating_sub(asked_at) < MAX_AGE_NANOS {
        return DIFFER.load(Ordering::Relaxed);
    }
    let handlers = Handlers::of_process();
    DIFFER.store(handlers.restarts && handlers.interrupts, Ordering::Relaxed);
    ASKED_AT.store(now, Ordering::Release);
    handlers.restarts && handlers.interrupts
}

fn nanos_of_clock() -> u64 {
    // The clock exists; if not, the handlers are asked each time.
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |now| Duration::from(now).as_nanos() as u64)
}
