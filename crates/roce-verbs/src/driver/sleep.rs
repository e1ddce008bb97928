//! The driver thread's sleep, and sleeping on descriptors in general.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags};
use nix::sys::eventfd::{EfdFlags, EventFd};
use roce_io::process::Own;
use roce_transport::Instant;

use crate::error::Error;

/// Longest single sleep: `ppoll` refuses times that do not fit its type.
const MAX_SLEEP: Duration = Duration::from_secs(3600);

/// Time of a sleep where the kernel waits for no descriptor.
const BLIND_SLEEP: Duration = Duration::from_millis(1);

/// How long the driver thread sleeps and whether frames wake it, for other threads to see.
///
/// A thread that creates work for the driver thread stores the work first and reads this
/// afterwards; the driver thread stores this first and reads the work afterwards. With
/// sequentially consistent accesses at least one of the two sees the other's store.
#[derive(Debug)]
pub(super) struct ThreadSleep {
    /// [`AWAKE`], or the nanosecond at which the sleep ends, with [`WATCHES_DEVICES`] as the lowest
    /// bit.
    state: AtomicU64,
    wake: Own<EventFd>,
}

const AWAKE: u64 = 0;
/// The devices' descriptors end the sleep too.
const WATCHES_DEVICES: u64 = 1;

impl ThreadSleep {
    pub(super) fn new() -> io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let wake = Own::make(|| EventFd::from_value_and_flags(0, flags))?;
        Ok(Self { state: AtomicU64::new(AWAKE), wake })
    }

    /// Notes that the driver thread is about to sleep until `until`.
    pub(super) fn begin(&self, until: Instant, watches_devices: bool) {
        let nanos = until.as_nanos() & !WATCHES_DEVICES;
        self.state.store(nanos | u64::from(watches_devices), Ordering::SeqCst);
    }

    /// Notes that the driver thread is awake.
    pub(super) fn end(&self) {
        self.end_unread();
        // As in `wake`.
        if self.can_wake() {
            let _read = self.wake.read();
        }
    }

    /// As [`end`](Self::end), where nothing has woken it, or the thread ends: nothing is read.
    pub(super) fn end_unread(&self) {
        self.state.store(AWAKE, Ordering::SeqCst);
    }

    /// Returns true if the driver thread sleeps beyond `at`.
    pub(super) fn lasts_beyond(&self, at: Instant) -> bool {
        self.state.load(Ordering::SeqCst) & !WATCHES_DEVICES > at.as_nanos()
    }

    /// Returns true if the driver thread sleeps and a frame would not wake it.
    pub(super) fn ignores_devices(&self) -> bool {
        let state = self.state.load(Ordering::SeqCst);
        state != AWAKE && state & WATCHES_DEVICES == 0
    }

    /// Returns true unless the program has closed the descriptor that ends the sleep.
    pub(super) fn can_wake(&self) -> bool {
        self.wake.is_open()
    }

    /// Ends the sleep. Further calls do nothing until the thread has slept again.
    pub(super) fn wake(&self) {
        self.state.store(AWAKE, Ordering::SeqCst);
        // The program may have closed all descriptors, and opened files of its own.
        if self.can_wake() {
            let _written = self.wake.write(1);
        }
    }
}

impl AsFd for ThreadSleep {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

/// Returns true for the error of a sleep on descriptors that the program has closed. Their numbers may be those
/// of files of its own by now: a thread that reads from them would take what is the program's.
pub(super) fn is_closed(error: &Error) -> bool {
    matches!(error, Error::System(error) if error.raw_os_error() == Some(libc::EBADF))
}

/// Sleeps until a descriptor is readable or the time is over, and returns which are readable.
///
/// # Errors
/// The kernel's; `EBADF` if a descriptor is closed.
pub(super) fn sleep(fds: &[BorrowedFd<'_>], limit: Option<Duration>) -> Result<Vec<bool>, Error> {
    let mut set: Vec<_> = fds.iter().map(|fd| PollFd::new(*fd, PollFlags::POLLIN)).collect();
    let timeout = limit.map(|it| nix::sys::time::TimeSpec::from_duration(it.min(MAX_SLEEP)));
    match nix::poll::ppoll(&mut set, timeout, None) {
        Ok(_) if set.iter().any(has_no_file) => {
            Err(io::Error::from_raw_os_error(libc::EBADF).into())
        }
        Ok(_) => Ok(set.iter().map(|fd| fd.any().unwrap_or(true)).collect()),
        Err(nix::errno::Errno::EINTR) => Ok(vec![false; fds.len()]),
        // The program may have no descriptor any more (RLIMIT_NOFILE), which holds for the number of those that
        // are waited for. All may be readable.
        Err(nix::errno::Errno::EINVAL) => {
            std::thread::sleep(limit.map_or(BLIND_SLEEP, |limit| limit.min(BLIND_SLEEP)));
            Ok(vec![true; fds.len()])
        }
        Err(errno) => Err(io::Error::from(errno).into()),
    }
}

fn has_no_file(entry: &PollFd<'_>) -> bool {
    entry.revents().is_some_and(|found| found.contains(PollFlags::POLLNVAL))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_threads_see_how_long_the_sleep_lasts_and_what_ends_it() {
        let sleep = ThreadSleep::new().unwrap();
        let at = |nanos| Instant::from_nanos(nanos);
        assert!(!sleep.lasts_beyond(at(0)) && !sleep.ignores_devices());
        sleep.begin(at(1000), false);
        assert!(sleep.lasts_beyond(at(999)) && !sleep.lasts_beyond(at(1000)));
        assert!(sleep.ignores_devices());
        sleep.begin(at(1000), true);
        assert!(sleep.lasts_beyond(at(999)) && !sleep.lasts_beyond(at(1000)));
        assert!(!sleep.ignores_devices());
        sleep.end();
        assert!(!sleep.lasts_beyond(at(0)) && !sleep.ignores_devices());
    }

    #[test]
    fn a_wake_that_comes_before_the_sleep_ends_it_at_once() {
        let thread = ThreadSleep::new().unwrap();
        thread.begin(Instant::from_nanos(u64::MAX), false);
        thread.wake();
        // Without the wake this would sleep for ever.
        assert_eq!(sleep(&[thread.as_fd()], None).unwrap(), [true]);
        thread.end();
        let readable = sleep(&[thread.as_fd()], Some(Duration::ZERO)).unwrap();
        assert_eq!(readable, [false], "the wake is used up");
    }
}
