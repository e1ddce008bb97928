//! Descriptors that belong to one process.

use std::{
    fmt, io,
    mem::ManuallyDrop,
    ops::{Deref, DerefMut},
    os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
    ptr,
};

use super::{descriptors::Entry, fork};

/// A descriptor that belongs to the process that made it.
///
/// A child made by `fork` closes its copy at once, so that what the descriptor holds, such as a port or a
/// name, is free when the parent closes it. A child of a bare `clone` does so when it uses this library.
///
/// When this is dropped, the descriptor is closed if it is still the same file. A program that closes all
/// descriptors and opens files of its own keeps these, and so does a child that drops objects of its parent.
/// Files are told apart by device and inode and, but for sockets and pipes, by a mark: the signal of `F_SETSIG`,
/// which nothing sends.
///
/// ```
/// use std::net::UdpSocket;
/// use roce_io::process::Own;
///
/// let socket = Own::make(|| UdpSocket::bind("127.0.0.1:0"))?;
/// assert_ne!(socket.local_addr()?.port(), 0);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Own<T: AsFd> {
    value: ManuallyDrop<T>,
    entry: ManuallyDrop<Entry>,
}

impl<T: AsFd> Own<T> {
    /// Makes a descriptor while no other thread forks. `make` waits for no lock, and makes no other one of
    /// this kind.
    ///
    /// # Errors
    /// Those of `make`; `ENOMEM`.
    pub fn make<E: Into<io::Error>>(make: impl FnOnce() -> Result<T, E>) -> io::Result<Self> {
        fork::between_forks(|| Self::enter(make().map_err(Into::into)?))
    }

    fn enter(value: T) -> io::Result<Self> {
        let entry = Entry::new(value.as_fd())?;
        Ok(Self { value: ManuallyDrop::new(value), entry: ManuallyDrop::new(entry) })
    }

    /// As [`make`](Self::make), for two descriptors that come of one.
    ///
    /// # Errors
    /// Those of `make`; `ENOMEM`.
    pub fn make_two<U: AsFd>(
        make: impl FnOnce() -> io::Result<(T, U)>,
    ) -> io::Result<(Self, Own<U>)> {
        let entered = || make().map(|(one, other)| (Self::enter(one), Own::enter(other)));
        let (one, other) = fork::between_forks(entered)?;
        Ok((one?, other?))
    }

    /// Returns true if the descriptor is still that of the same file: the program has not closed it, and this is
    /// the process that made it.
    pub fn is_open(&self) -> bool {
        self.entry.is_open()
    }

    /// Wraps the same descriptor in another type.
    pub fn map<U: AsFd>(self, wrap: impl FnOnce(T) -> U) -> Own<U> {
        let this = ManuallyDrop::new(self);
        // SAFETY: both are moved out of a value that is neither used nor dropped from here on.
        let (value, entry) =
            unsafe { (ptr::read(&raw const *this.value), ptr::read(&raw const *this.entry)) };
        Own { value: ManuallyDrop::new(wrap(value)), entry: ManuallyDrop::new(entry) }
    }
}

impl<T: AsFd> Drop for Own<T> {
    fn drop(&mut self) {
        // The entry goes after the descriptor, and not during a fork: the kernel copies descriptors for the child
        // before memory, which would have the one and not the other.
        if self.is_open() {
            // SAFETY: the value is not used again.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
        // SAFETY: the entry is not used again.
        fork::between_forks(|| unsafe { ManuallyDrop::drop(&mut self.entry) });
    }
}

impl<T: AsFd> Deref for Own<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: AsFd> DerefMut for Own<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T: AsFd> AsFd for Own<T> {
    #[inline]
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.value.as_fd()
    }
}

impl<T: AsFd> AsRawFd for Own<T> {
    #[inline]
    fn as_raw_fd(&self) -> RawFd {
        self.value.as_fd().as_raw_fd()
    }
}

impl<T: AsFd + fmt::Debug> fmt::Debug for Own<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::File,
        io::Read,
        net::UdpSocket,
        os::{
            fd::{FromRawFd, IntoRawFd, OwnedFd},
            unix::net::UnixStream,
        },
        time::Duration,
    };

    use super::*;

    fn event_fd() -> Own<File> {
        use std::os::fd::FromRawFd;
        Own::make(|| {
            // SAFETY: a new descriptor, which nothing else owns.
            Ok::<_, io::Error>(unsafe { File::from_raw_fd(libc::eventfd(0, libc::EFD_CLOEXEC)) })
        })
        .unwrap()
    }

    fn is_open(fd: RawFd) -> bool {
        // SAFETY: the command has no argument.
        unsafe { libc::fcntl(fd, libc::F_GETFD) >= 0 }
    }

    /// Puts another file at the number of a descriptor.
    fn replace(fd: RawFd, other: impl IntoRawFd) {
        let other = other.into_raw_fd();
        // SAFETY: both are descriptors of this test, which takes the numbers for its own.
        unsafe {
            assert_eq!(libc::dup2(other, fd), fd);
            libc::close(other);
        }
    }

    #[test]
    fn a_descriptor_is_closed_with_its_owner_unless_its_number_is_that_of_another_file() {
        let bind = || UdpSocket::bind("127.0.0.1:0");
        let own = Own::make(bind).unwrap();
        let fd = own.as_raw_fd();
        replace(fd, bind().unwrap());
        assert!(!own.is_open());
        drop(own);
        assert!(is_open(fd), "it is the program's");

        let own = event_fd();
        let fd = own.as_raw_fd();
        // SAFETY: as in `event_fd`.
        replace(fd, unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) });
        drop(own);
        assert!(is_open(fd), "an eventfd of the program's is told from another by its number");

        let (mut here, there) = UnixStream::pair().unwrap();
        let own = Own::make(|| Ok::<_, io::Error>(there)).unwrap().map(OwnedFd::from);
        assert!(own.is_open());
        drop(own);
        // A child of another test may have a copy for a moment.
        here.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        assert_eq!(here.read(&mut [0]).unwrap(), 0, "closed");
    }

    /// Runs a test in a child, which ends without running handlers. Neither the test nor what it drops uses the
    /// heap, of which another thread of the parent may have the lock.
    fn is_right_in_child(is_bare: bool, test: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child calls what needs no lock, and ends here.
        let child = unsafe {
            match is_bare {
                false => libc::fork(),
                true => libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as i32,
            }
        };
        if child == 0 {
            let is_right = test();
            // SAFETY: ends the process.
            unsafe { libc::_exit(i32::from(!is_right)) };
        }
        let mut status = 0;
        // SAFETY: the kernel writes the status.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        status == 0
    }

    #[test]
    fn a_child_has_no_descriptor_of_its_parent_and_closes_none_that_has_its_number() {
        for is_bare in [false, true] {
            // Not in the heap.
            let keep: [_; 200] = std::array::from_fn(|_| event_fd());
            let fds = keep.each_ref().map(Own::as_raw_fd);
            let kept = ManuallyDrop::new(keep);
            let is_right = is_right_in_child(is_bare, || {
                let _noticed = fork::Generation::current();
                let mut is_right = fds.iter().all(|fd| !is_open(*fd));
                // SAFETY: duplicates of standard input.
                is_right &= unsafe { libc::dup2(0, fds[7]) == fds[7] };
                // SAFETY: the child's copy, which is not used again.
                drop(ManuallyDrop::into_inner(unsafe { ptr::read(&raw const kept) }));
                is_right & is_open(fds[7])
            });
            assert!(is_right, "bare clone: {is_bare}");
            assert!(fds.iter().all(|fd| is_open(*fd)));
            drop(ManuallyDrop::into_inner(kept));
        }
    }

    #[test]
    fn a_child_keeps_a_descriptor_that_it_makes_before_all_else() {
        let parents = event_fd();
        for is_bare in [false, true] {
            let is_right = is_right_in_child(is_bare, || {
                let own = event_fd();
                let _noticed = fork::Generation::current();
                own.is_open() && is_open(own.as_raw_fd()) && !parents.is_open()
            });
            assert!(is_right, "bare clone: {is_bare}");
        }
    }

    #[test]
    fn a_file_of_the_program_at_the_number_of_a_closed_descriptor_is_not_taken_for_that() {
        type Make = fn() -> RawFd;
        // SAFETY: new descriptors.
        let kinds: [(&str, Make); 4] = unsafe {
            [
                ("eventfd", || libc::eventfd(0, libc::EFD_CLOEXEC)),
                ("epoll", || libc::epoll_create1(libc::EPOLL_CLOEXEC)),
                ("file", || libc::open(c"/dev/null".as_ptr(), libc::O_CLOEXEC)),
                ("socket", || libc::socket(libc::AF_UNIX, libc::SOCK_DGRAM, 0)),
            ]
        };
        for (kind, make) in kinds {
            let is_right = is_right_in_child(false, || {
                // SAFETY: a new descriptor, which nothing else owns.
                let wrap = |number| Ok::<_, io::Error>(unsafe { OwnedFd::from_raw_fd(number) });
                let Ok(own) = Own::make(|| wrap(make())) else { return false };
                let (number, was_open) = (own.as_raw_fd(), own.is_open());
                // First closed, so that the kernel may number the program's eventfd as the one before. SAFETY: the
                // owner finds that it has none.
                let of_program = unsafe {
                    libc::close(number);
                    make()
                };
                // SAFETY: no descriptor has this number, or it is the same.
                let is_there = unsafe { libc::dup2(of_program, number) == number };
                let is_told_apart = !own.is_open();
                drop(own);
                was_open && is_there && is_told_apart && is_open(number)
            });
            assert!(is_right, "{kind}");
        }
    }
}
