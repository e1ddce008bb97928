//! Datagrams of unix sockets with the user of their sender, and what a thread sleeps on for several sockets.

use std::{
    io, mem,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

use super::own::Own;
use super::socket::set_int;

/// Makes a unix socket tell the user of each sender.
pub(crate) fn tell_senders(fd: BorrowedFd<'_>) -> io::Result<()> {
    set_int(fd, libc::SOL_SOCKET, libc::SO_PASSCRED, 1)
}

/// A datagram from a unix socket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passed {
    /// Bytes in the buffer.
    pub(crate) len: usize,
    /// It was sent by the effective user of this process, and fits the buffer.
    pub(crate) is_trusted: bool,
}

/// Receives a waiting datagram of a unix socket that [tells senders](tell_senders).
pub(crate) fn receive(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Passed> {
    let mut vector = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let mut control = [0_u64; 8];
    // SAFETY: a `msghdr` is plain data, for which all zeros is a value.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut vector;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = mem::size_of_val(&control) as _;
    // SAFETY: the message points to a vector and a control buffer that outlive the call; the vector
    // describes a buffer that is borrowed mutably for its length. Descriptors are not asked for: what a
    // sender attaches is closed with `MSG_CMSG_CLOEXEC` in the way below.
    let len = unsafe {
        libc::recvmsg(fd.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC)
    };
    if len < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut user = None;
    // SAFETY: the message has the control buffer that it was received with.
    let mut cursor = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    while !cursor.is_null() {
        // SAFETY: a cursor that is not null points to a whole header in the control buffer, behind which
        // is what its length and kind say.
        unsafe {
            let data = libc::CMSG_DATA(cursor);
            let len = ((*cursor).cmsg_len as usize)
                .saturating_sub(data.offset_from_unsigned(cursor.cast()));
            match ((*cursor).cmsg_level, (*cursor).cmsg_type) {
                (libc::SOL_SOCKET, libc::SCM_CREDENTIALS)
                    if len >= mem::size_of::<libc::ucred>() =>
                {
                    user = Some(data.cast::<libc::ucred>().read_unaligned().uid);
                }
                (libc::SOL_SOCKET, libc::SCM_RIGHTS) => {
                    for place in 0..len / mem::size_of::<i32>() {
                        drop(OwnedFd::from_raw_fd(data.cast::<i32>().add(place).read_unaligned()));
                    }
                }
                _ => {}
            }
            cursor = libc::CMSG_NXTHDR(&raw const message, cursor);
        }
    }
    let is_whole = message.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) == 0;
    Ok(Passed {
        len: (len as usize).min(buffer.len()),
        is_trusted: is_whole && user == Some(effective_user()),
    })
}

/// Returns the effective user of this process.
pub(crate) fn effective_user() -> u32 {
    // SAFETY: the call has no arguments and cannot fail.
    unsafe { libc::geteuid() }
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
