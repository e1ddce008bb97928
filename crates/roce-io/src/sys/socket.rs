//! Socket options and addresses that socket2 lacks.

use std::{
    io, mem,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd},
};

use socket2::{Domain, Protocol, SockAddr, SockAddrStorage, Type};

use super::own::Own;

/// A socket that belongs to this process.
pub(crate) type Socket = Own<socket2::Socket>;

/// Opens a socket that neither a child nor a program started by `exec` keeps.
///
/// The system call is made without the C library's function: a library that is loaded before that one may
/// have a `socket` of its own, as librspreload does, whose result is no descriptor of the kernel's. The
/// socket may be given to the C library's other functions, which such libraries pass on.
pub(crate) fn open(domain: Domain, kind: Type, protocol: Option<Protocol>) -> io::Result<Socket> {
    let protocol = protocol.map_or(0, i32::from);
    let kind = i32::from(kind) | libc::SOCK_CLOEXEC;
    Own::make(|| open_at_all(i32::from(domain), kind, protocol))
}

fn open_at_all(domain: i32, kind: i32, protocol: i32) -> io::Result<socket2::Socket> {
    // SAFETY: the call takes any three numbers.
    let fd = unsafe { libc::syscall(libc::SYS_socket, domain, kind, protocol) };
    match i32::try_from(fd) {
        Ok(fd @ 0..) => {
            // librspreload looks up the functions that it passes calls on to in `socket`, `fcntl` and some
            // others, but not in `bind`, `connect`, `setsockopt` or `sendto`, which would jump to address 0.
            // SAFETY: the command has no argument.
            unsafe { libc::fcntl(fd, libc::F_GETFD) };
            // SAFETY: a new descriptor, which nothing else owns.
            Ok(unsafe { socket2::Socket::from_raw_fd(fd) })
        }
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sets an integer option.
pub(crate) fn set_int(fd: BorrowedFd<'_>, level: i32, name: i32, value: i32) -> io::Result<()> {
    set(fd, level, name, &value)
}

/// Creates a receive ring.
pub(crate) fn set_rx_ring(fd: BorrowedFd<'_>, request: &libc::tpacket_req) -> io::Result<()> {
    set(fd, libc::SOL_PACKET, libc::PACKET_RX_RING, request)
}

/// Makes an interface promiscuous as long as the packet socket exists.
pub(crate) fn set_promiscuous(fd: BorrowedFd<'_>, index: u32) -> io::Result<()> {
    let request = libc::packet_mreq {
        mr_ifindex: index as i32,
        mr_type: libc::PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set(fd, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &request)
}

/// Returns the numbers of frames seen, and of frames dropped because the buffer was full, since the
/// last call.
pub(crate) fn packet_statistics(fd: BorrowedFd<'_>) -> io::Result<(u32, u32)> {
    let mut stats = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
    let mut len = mem::size_of_val(&stats) as libc::socklen_t;
    // SAFETY: `stats` and `len` outlive the call, and `len` is the size of `stats`.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            (&raw mut stats).cast(),
            &raw mut len,
        )
    };
    if result == 0 {
        Ok((stats.tp_packets, stats.tp_drops))
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Returns the kernel's number of the network namespace of a socket.
pub(crate) fn namespace_cookie(fd: BorrowedFd<'_>) -> io::Result<u64> {
    let mut cookie = 0;
    get(fd, libc::SOL_SOCKET, SO_NETNS_COOKIE, &mut cookie)?;
    Ok(cookie)
}

/// Of `asm-generic/socket.h`.
const SO_NETNS_COOKIE: i32 = 71;

/// Returns the address that ends the connection of a UDP socket.
pub(crate) fn no_peer() -> SockAddr {
    // The family of zeros is AF_UNSPEC.
    let len = mem::size_of::<libc::sockaddr_in6>() as libc::socklen_t;
    // SAFETY: the storage was zeroed, is longer than that, and zeros are an address without fields.
    unsafe { SockAddr::new(SockAddrStorage::zeroed(), len) }
}

/// Returns the address of an interface for a packet socket, for all protocols.
pub(crate) fn packet_address(index: u32) -> SockAddr {
    let mut storage = SockAddrStorage::zeroed();
    // SAFETY: `sockaddr_ll` is a plain socket address, which the storage has room for.
    let address = unsafe { storage.view_as::<libc::sockaddr_ll>() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index as i32;
    // SAFETY: the storage was zeroed and then filled in as a `sockaddr_ll` of this length.
    unsafe { SockAddr::new(storage, mem::size_of::<libc::sockaddr_ll>() as libc::socklen_t) }
}

/// Returns the number of the interface that a packet socket is bound to; none has that of an interface
/// that was removed.
pub(crate) fn bound_interface(address: &SockAddr) -> Option<u32> {
    if address.family() != libc::AF_PACKET as libc::sa_family_t
        || (address.len() as usize) < mem::offset_of!(libc::sockaddr_ll, sll_hatype)
    {
        return None;
    }
    // SAFETY: an address of this family and length has these fields; the storage behind it is longer
    // than any address, and aligned.
    let index = unsafe { (*address.as_ptr().cast::<libc::sockaddr_ll>()).sll_ifindex };
    u32::try_from(index).ok().filter(|index| *index > 0)
}

/// Sets an option, of which `value` is what the kernel's interface says.
pub(super) fn set<T: Copy>(fd: BorrowedFd<'_>, level: i32, name: i32, value: &T) -> io::Result<()> {
    // SAFETY: the kernel only reads, and no further than the size given.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            (&raw const *value).cast(),
            mem::size_of::<T>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reads an option, of which `value` is what the kernel's interface says; more than an older kernel knows
/// stays as it is.
pub(super) fn get<T: Copy>(
    fd: BorrowedFd<'_>,
    level: i32,
    name: i32,
    value: &mut T,
) -> io::Result<()> {
    let mut len = mem::size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes no further than the size given. Each option that is read so is plain data,
    // for which all bytes are a value.
    let result = unsafe {
        libc::getsockopt(fd.as_raw_fd(), level, name, (&raw mut *value).cast(), &raw mut len)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Binds an AF_XDP socket to a receive queue of an interface.
pub(super) fn bind_xdp(
    fd: BorrowedFd<'_>,
    interface: u32,
    queue: u32,
    flags: u16,
) -> io::Result<()> {
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: flags,
        sxdp_ifindex: interface,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: 0,
    };
    // SAFETY: the kernel only reads the address, and no further than its size.
    let result = unsafe {
        libc::bind(
            fd.as_raw_fd(),
            (&raw const address).cast(),
            mem::size_of::<libc::sockaddr_xdp>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
