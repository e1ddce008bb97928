//! The users of unix sockets, and what a thread sleeps on for several sockets.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

use super::own::Own;
use super::socket::get;

/// Returns the user at the other end of a connection of unix sockets, as the kernel knows it: the effective user of
/// the process that connected, or that listens.
pub(crate) fn peer_user(fd: BorrowedFd<'_>) -> io::Result<u32> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    get(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, &mut peer)?;
    Ok(peer.uid)
}

/// Returns the effective user of this process.
pub(crate) fn effective_user() -> u32 {
    // SAFETY: the call has no arguments and cannot fail.
    unsafe { libc::geteuid() }
}

/// Returns true if a user at the other end is that of this process.
pub(crate) fn is_own_user(user: u32) -> bool {
    is_user(user, effective_user())
}

/// Returns true if a user at the other end is this one.
pub(crate) fn is_user(user: u32, own: u32) -> bool {
    is_same_user(user, own, has_every_user)
}

/// Users that a user namespace does not have are all shown under one number, also to one of them.
fn is_same_user(user: u32, own: u32, has_every_user: impl Fn() -> bool) -> bool {
    user == own && (own != OVERFLOW || has_every_user())
}

/// The number of users that this process's user namespace does not have, unless `kernel.overflowuid` is another.
const OVERFLOW: u32 = 65_534;

/// Returns true if this process's user namespace has all users, as the first one has.
fn has_every_user() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// A descriptor that is readable while any of several sockets is.
#[derive(Debug)]
pub(crate) struct AnyReadable(Own<OwnedFd>);

impl AnyReadable {
    /// Makes one without sockets.
    pub(crate) fn new() -> io::Result<Self> {
        Own::make(|| {
            // SAFETY: the call has no other argument.
            let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: a new descriptor, which nothing else owns.
            Ok(unsafe { OwnedFd::from_raw_fd(fd) })
        })
        .map(Self)
    }

    /// Adds a socket under a number below 64.
    pub(crate) fn add(&self, socket: BorrowedFd<'_>, number: u32) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, socket, number)
    }

    /// Removes a socket: closing it is not enough if a child of `fork` has it too.
    pub(crate) fn remove(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, socket, 0)
    }

    fn control(&self, operation: i32, socket: BorrowedFd<'_>, number: u32) -> io::Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: number.into() };
        // SAFETY: both descriptors are open, and the kernel only reads the event.
        let result = unsafe {
            libc::epoll_ctl(self.0.as_raw_fd(), operation, socket.as_raw_fd(), &raw mut event)
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Returns the numbers of the sockets that are readable now, as bits.
    pub(crate) fn readable(&self) -> io::Result<u64> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 64];
        // SAFETY: the kernel writes at most as many events as there is room for.
        let count = unsafe {
            libc::epoll_wait(self.0.as_raw_fd(), events.as_mut_ptr(), events.len() as i32, 0)
        };
        let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
        let ready = events.iter().take(count);
        Ok(ready.fold(0, |bits, event| bits | 1_u64.checked_shl(event.u64 as u32).unwrap_or(0)))
    }
}

impl std::os::fd::AsFd for AnyReadable {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_that_a_namespace_does_not_have_are_not_taken_for_one_another() {
        assert!(is_same_user(7, 7, || false) && !is_same_user(7, 8, || true));
        assert!(is_same_user(OVERFLOW, OVERFLOW, || true), "it is a user like others");
        assert!(!is_same_user(OVERFLOW, OVERFLOW, || false));
    }
}
