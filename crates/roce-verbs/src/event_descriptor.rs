//! The descriptor of a list of events, as programs use it with poll(2).

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use roce_io::process::Own;

use crate::process::background_thread::is_background_thread;

/// A descriptor that is readable exactly while events wait, never writable, and sends SIGIO where the program
/// asks for it, as those of the kernel's uverbs.
///
/// It is the reading end of a pipe, in which a byte lies for each event. The program owns its flags and may
/// read it, so that a read of it here could block. What is read here is another opening of the same pipe.
/// That needs `/proc`. Without it the program's descriptor is read here, after a look whether it has bytes: a
/// program that reads it at that moment blocks the caller. The library itself does not read it then: see
/// [`may_events_be_read`].
///
/// All calls are made with the lock of the list held.
#[derive(Debug)]
pub(crate) struct EventDescriptor {
    of_program: Own<io::PipeReader>,
    /// Writes, and never blocks.
    inner: Own<File>,
    /// `inner` reads, too.
    is_reopened: bool,
    /// Bytes in the pipe, unless the program has read some.
    bytes: AtomicUsize,
    /// `inner` is that of this crate's own threads, too.
    is_shared: AtomicBool,
}

/// A descriptor could not be opened a second time.
static IS_READ_BY_LIBRARY: AtomicBool = AtomicBool::new(false);

/// Returns true if a caller that waits for an event may sleep in read(2) of a list's descriptor: no descriptor
/// of this process is one that the library reads in the same way.
pub fn may_events_be_read() -> bool {
    !IS_READ_BY_LIBRARY.load(Ordering::Relaxed)
}

/// Most bytes in the pipe. Some users' pipes have a single page.
const MAX_BYTES: usize = 1024;

impl EventDescriptor {
    pub(crate) fn new() -> io::Result<Self> {
        Self::with(|path| {
            OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path)
        })
    }

    /// Makes a descriptor, with a function that opens a path.
    fn with(reopen: impl FnOnce(&str) -> io::Result<File>) -> io::Result<Self> {
        let mut is_reopened = true;
        let (of_program, inner) = Own::make_two(|| {
            let (reader, writer) = io::pipe()?;
            let inner =
                reopen(&format!("/proc/self/fd/{}", reader.as_raw_fd())).unwrap_or_else(|_| {
                    is_reopened = false;
                    IS_READ_BY_LIBRARY.store(true, Ordering::Relaxed);
                    File::from(OwnedFd::from(writer))
                });
            Ok((reader, inner))
        })?;
        let (bytes, is_shared) = Default::default();
        Ok(Self { of_program, inner, is_reopened, bytes, is_shared })
    }

    fn read(&self, bytes: &mut [u8]) -> io::Result<usize> {
        if self.is_reopened {
            return (&*self.inner).read(bytes);
        }
        let mut set = [PollFd::new(self.of_program.as_fd(), PollFlags::POLLIN)];
        match poll(&mut set, PollTimeout::ZERO)? {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            _ => (&*self.of_program).read(bytes),
        }
    }

    fn set_bytes(&self, bytes: usize) {
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    fn write(&self, count: usize) {
        let bytes = self.bytes.load(Ordering::Relaxed);
        let count = count.min(MAX_BYTES.saturating_sub(bytes));
        if count > 0 && self.is_of_this_thread() {
            let written = (&*self.inner).write(&[0; MAX_BYTES][..count]).unwrap_or(0);
            self.set_bytes(bytes + written);
        }
    }

    /// Returns true unless the number is another file's for the calling thread: a program that has called
    /// `unshare(CLONE_FILES)` makes descriptors that threads of before do not have. One look is enough.
    fn is_of_this_thread(&self) -> bool {
        if !is_background_thread() || self.is_shared.load(Ordering::Relaxed) {
            return true;
        }
        let is_shared = self.inner.is_open();
        self.is_shared.store(is_shared, Ordering::Relaxed);
        is_shared
    }

    /// Notes that an event came. Whatever sleeps on the descriptor wakes, also where others waited already.
    pub(crate) fn added(&self) {
        self.write(1);
    }

    /// Notes that events have left the list, in which so many are left.
    pub(crate) fn removed(&self, left: usize) {
        let bytes = self.bytes.load(Ordering::Relaxed);
        let surplus = bytes.saturating_sub(left);
        if surplus == 0 {
            return;
        }
        match self.read(&mut [0; MAX_BYTES][..surplus]) {
            Ok(read) if read == surplus => self.set_bytes(bytes - read),
            // The program has read some.
            _ => self.count_anew(left),
        }
    }

    /// Notes that bytes were read, in whatever way, while so many events are in the list.
    pub(crate) fn count_anew(&self, left: usize) {
        let _empty = self.read(&mut [0; MAX_BYTES]);
        self.set_bytes(0);
        self.write(left);
    }
}

impl AsFd for EventDescriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.of_program.as_fd()
    }
}

impl AsRawFd for EventDescriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.of_program.as_fd().as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A descriptor as it is made, and one of a process without `/proc`.
    fn both() -> [EventDescriptor; 2] {
        let without = EventDescriptor::with(|_| Err(io::ErrorKind::NotFound.into())).unwrap();
        assert!(!without.is_reopened);
        [EventDescriptor::new().unwrap(), without]
    }

    fn readiness(descriptor: &EventDescriptor) -> PollFlags {
        let asked = PollFlags::POLLIN | PollFlags::POLLOUT;
        let mut set = [PollFd::new(descriptor.as_fd(), asked)];
        poll(&mut set, PollTimeout::ZERO).unwrap();
        set[0].revents().unwrap()
    }

    #[test]
    fn a_descriptor_is_readable_while_events_wait_and_never_writable() {
        for descriptor in both() {
            assert_eq!(readiness(&descriptor), PollFlags::empty());
            (0..MAX_BYTES + 9).for_each(|_| descriptor.added());
            for left in (1..MAX_BYTES + 9).rev() {
                descriptor.removed(left);
                assert_eq!(readiness(&descriptor), PollFlags::POLLIN, "{left} wait");
            }
            descriptor.removed(0);
            assert_eq!(readiness(&descriptor), PollFlags::empty());
        }
    }

    #[test]
    fn a_program_that_reads_the_descriptor_itself_blocks_nothing_and_the_next_event_is_seen() {
        for descriptor in both() {
            (0..3).for_each(|_| descriptor.added());
            let mut bytes = [0; 8];
            assert_eq!((&*descriptor.of_program).read(&mut bytes).unwrap(), 3);
            // Blocking, as the program's descriptor is, this would wait for ever.
            descriptor.removed(2);
            assert_eq!(readiness(&descriptor), PollFlags::POLLIN, "two wait");
            descriptor.removed(0);
            assert_eq!(readiness(&descriptor), PollFlags::empty());
            descriptor.added();
            assert_eq!((&*descriptor.of_program).read(&mut bytes).unwrap(), 1);
            descriptor.count_anew(1);
            assert_eq!(readiness(&descriptor), PollFlags::POLLIN);
        }
    }
}
