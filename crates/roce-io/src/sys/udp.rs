//! Datagrams with their addresses, traffic class and segment length, several in one system call.

use std::{
    io, mem,
    mem::MaybeUninit,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    os::fd::{AsRawFd, BorrowedFd},
    ptr,
};

use super::mmsg::message_of;

/// Maximum number of datagrams of one call.
pub(crate) const MAX_BATCH: usize = 16;

/// A datagram to send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outgoing<'a> {
    pub(crate) payload: &'a [u8],
    /// Source address, one of this host's.
    pub(crate) source: IpAddr,
    /// Destination address, of the same IP version.
    pub(crate) destination: IpAddr,
    /// Destination port.
    pub(crate) port: u16,
    /// Index of the interface through which it leaves; 0: the kernel chooses.
    pub(crate) interface: u32,
    /// TOS (IPv4) or traffic class (IPv6).
    pub(crate) traffic_class: u8,
    /// TTL (IPv4) or hop limit (IPv6).
    pub(crate) hop_limit: u8,
    /// Bytes at which the kernel segments the payload.
    pub(crate) segment_len: Option<u16>,
}

/// A received datagram, whose payload is in the buffer of its number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Incoming {
    /// Bytes in the buffer.
    pub(crate) len: usize,
    /// The datagram, or what the kernel says about it, was longer than the buffers.
    pub(crate) truncated: bool,
    /// Source address; IPv4 as such, also on an IPv6 socket.
    pub(crate) source: IpAddr,
    /// Source port.
    pub(crate) source_port: u16,
    /// Destination address, if the kernel told it.
    pub(crate) destination: Option<IpAddr>,
    /// TOS (IPv4) or traffic class (IPv6).
    pub(crate) traffic_class: u8,
    /// UDP payload bytes of each packet of a train but the last.
    pub(crate) segment_len: Option<usize>,
}

impl Default for Incoming {
    fn default() -> Self {
        Self {
            len: 0,
            truncated: false,
            source: Ipv4Addr::UNSPECIFIED.into(),
            source_port: 0,
            destination: None,
            traffic_class: 0,
            segment_len: None,
        }
    }
}

/// Bytes of control messages of one datagram, which needs 112 at most; aligned as they have to be.
type Control = [u64; 16];

/// Sends as many of the first [`MAX_BATCH`] datagrams as the kernel takes now: at least one, or an error.
/// `is_v6` says that the socket is one of IPv6, which sends IPv4, too.
pub(crate) fn send<'a>(
    fd: BorrowedFd<'_>,
    is_v6: bool,
    datagrams: impl Iterator<Item = Outgoing<'a>>,
) -> io::Result<usize> {
    let mut names = [const { MaybeUninit::<libc::sockaddr_in6>::uninit() }; MAX_BATCH];
    let mut controls = [const { MaybeUninit::<Control>::uninit() }; MAX_BATCH];
    let mut vectors = [const { MaybeUninit::<libc::iovec>::uninit() }; MAX_BATCH];
    let mut messages = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; MAX_BATCH];
    let mut count = 0;
    for datagram in datagrams.take(MAX_BATCH) {
        // The kernel only reads through this pointer.
        let base = datagram.payload.as_ptr().cast_mut().cast();
        let vector = libc::iovec { iov_base: base, iov_len: datagram.payload.len() };
        let vector = vectors[count].write(vector);
        let mut message = message_of(vector);
        let name = &mut names[count];
        message.msg_hdr.msg_namelen = write_name(name, is_v6, &datagram);
        message.msg_hdr.msg_name = name.as_mut_ptr().cast();
        let control = controls[count].write([0; 16]);
        message.msg_hdr.msg_control = control.as_mut_ptr().cast();
        message.msg_hdr.msg_controllen = mem::size_of::<Control>() as _;
        let used = write_control(&message.msg_hdr, is_v6, &datagram);
        message.msg_hdr.msg_controllen = used as _;
        messages[count].write(message);
        count += 1;
    }
    if count == 0 {
        return Ok(0);
    }
    // SAFETY: the first `count` messages are initialised; each points to one initialised vector, name and
    // control buffer of the same number, and the vector to a slice that outlives this call ('a); the
    // kernel only reads them.
    let sent = unsafe {
        libc::sendmmsg(
            fd.as_raw_fd(),
            messages.as_mut_ptr().cast(),
            count as libc::c_uint,
            libc::MSG_DONTWAIT as _,
        )
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(sent as usize) }
}

/// Writes the destination; returns its length.
fn write_name(
    name: &mut MaybeUninit<libc::sockaddr_in6>,
    is_v6: bool,
    datagram: &Outgoing<'_>,
) -> libc::socklen_t {
    // SAFETY: a `sockaddr_in6` is plain data, for which all zeros is a value.
    let name = name.write(unsafe { mem::zeroed() });
    match datagram.destination {
        IpAddr::V4(address) if !is_v6 => {
            // SAFETY: the address of another family is shorter, and has no stricter alignment.
            let name = unsafe { &mut *(&raw mut *name).cast::<libc::sockaddr_in>() };
            name.sin_family = libc::AF_INET as _;
            name.sin_port = datagram.port.to_be();
            name.sin_addr.s_addr = u32::from_ne_bytes(address.octets());
            mem::size_of::<libc::sockaddr_in>() as _
        }
        destination => {
            name.sin6_family = libc::AF_INET6 as _;
            name.sin6_port = datagram.port.to_be();
            let address = as_v6(destination);
            name.sin6_addr.s6_addr = address.octets();
            if address.is_unicast_link_local() || address.is_multicast() {
                name.sin6_scope_id = datagram.interface;
            }
            mem::size_of::<libc::sockaddr_in6>() as _
        }
    }
}

/// Writes what is said about a datagram into the control buffer of its message; returns the bytes used.
fn write_control(message: &libc::msghdr, is_v6: bool, datagram: &Outgoing<'_>) -> usize {
    // SAFETY: the message has a control buffer with room for all that is written below.
    let mut cursor = unsafe { libc::CMSG_FIRSTHDR(message) };
    let mut used = 0;
    let is_v4 = datagram.destination.is_ipv4();
    match datagram.source {
        IpAddr::V4(source) if !is_v6 => {
            let info = libc::in_pktinfo {
                ipi_ifindex: datagram.interface as i32,
                ipi_spec_dst: libc::in_addr { s_addr: u32::from_ne_bytes(source.octets()) },
                ipi_addr: libc::in_addr { s_addr: 0 },
            };
            put(message, &mut cursor, &mut used, libc::IPPROTO_IP, libc::IP_PKTINFO, &info);
        }
        source => {
            let info = libc::in6_pktinfo {
                ipi6_addr: libc::in6_addr { s6_addr: as_v6(source).octets() },
                ipi6_ifindex: datagram.interface as _,
            };
            put(message, &mut cursor, &mut used, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info);
        }
    }
    let (level, class, limit) = match is_v4 {
        true => (libc::IPPROTO_IP, libc::IP_TOS, libc::IP_TTL),
        false => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS, libc::IPV6_HOPLIMIT),
    };
    put(message, &mut cursor, &mut used, level, class, &i32::from(datagram.traffic_class));
    if datagram.hop_limit != DEFAULT_HOP_LIMIT && datagram.hop_limit != 0 {
        put(message, &mut cursor, &mut used, level, limit, &i32::from(datagram.hop_limit));
    }
    if let Some(segment_len) = datagram.segment_len {
        put(message, &mut cursor, &mut used, libc::SOL_UDP, libc::UDP_SEGMENT, &segment_len);
    }
    used
}

/// What [`send`] leaves to the socket's options.
pub(crate) const DEFAULT_HOP_LIMIT: u8 = 64;

/// Writes one control message at the cursor, if there is room, and moves the cursor on.
fn put<T: Copy>(
    message: &libc::msghdr,
    cursor: &mut *mut libc::cmsghdr,
    used: &mut usize,
    level: i32,
    kind: i32,
    value: &T,
) {
    let len = mem::size_of::<T>() as libc::c_uint;
    // SAFETY: neither reads memory.
    let (whole, space) = unsafe { (libc::CMSG_LEN(len), libc::CMSG_SPACE(len) as usize) };
    if cursor.is_null() || *used + space > mem::size_of::<Control>() {
        debug_assert!(false, "the control buffer is too short");
        return;
    }
    // SAFETY: the cursor points to a header within the control buffer, behind which are `space` bytes; the
    // value may be unaligned there.
    unsafe {
        (**cursor).cmsg_len = whole as _;
        (**cursor).cmsg_level = level;
        (**cursor).cmsg_type = kind;
        libc::CMSG_DATA(*cursor).cast::<T>().write_unaligned(*value);
        *cursor = libc::CMSG_NXTHDR(message, *cursor);
    }
    *used += space;
}

/// Receives waiting datagrams, one into each buffer from the byte `at` on, and describes them in
/// `datagrams` (as many as buffers, at most [`MAX_BATCH`]). Returns how many.
pub(crate) fn receive(
    fd: BorrowedFd<'_>,
    buffers: &mut [Vec<u8>],
    at: usize,
    datagrams: &mut [Incoming],
) -> io::Result<usize> {
    let mut names = [const { MaybeUninit::<libc::sockaddr_in6>::uninit() }; MAX_BATCH];
    let mut controls = [const { MaybeUninit::<Control>::uninit() }; MAX_BATCH];
    let mut vectors = [const { MaybeUninit::<libc::iovec>::uninit() }; MAX_BATCH];
    let mut messages = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; MAX_BATCH];
    let mut count = 0;
    for buffer in buffers.iter_mut().take(MAX_BATCH) {
        let payload = buffer.get_mut(at..).unwrap_or_default();
        let vector = libc::iovec { iov_base: payload.as_mut_ptr().cast(), iov_len: payload.len() };
        let vector = vectors[count].write(vector);
        let mut message = message_of(vector);
        // SAFETY: an address is plain data, for which all zeros is a value.
        names[count].write(unsafe { mem::zeroed() });
        message.msg_hdr.msg_name = names[count].as_mut_ptr().cast();
        message.msg_hdr.msg_namelen = mem::size_of::<libc::sockaddr_in6>() as _;
        let control = controls[count].write([0; 16]);
        message.msg_hdr.msg_control = control.as_mut_ptr().cast();
        message.msg_hdr.msg_controllen = mem::size_of::<Control>() as _;
        messages[count].write(message);
        count += 1;
    }
    // SAFETY: the first `count` messages are initialised; each points to one initialised vector, name and
    // control buffer of the same number, and the vector to a buffer of its own, which is borrowed mutably
    // for the length of this call.
    let received = unsafe {
        libc::recvmmsg(
            fd.as_raw_fd(),
            messages.as_mut_ptr().cast(),
            count as libc::c_uint,
            libc::MSG_DONTWAIT as _,
            ptr::null_mut(),
        )
    };
    if received < 0 {
        return Err(io::Error::last_os_error());
    }
    let received = (received as usize).min(count);
    let lens = buffers.iter().map(|buffer| buffer.len().saturating_sub(at));
    let described = messages[..received].iter().zip(&names).zip(lens).zip(datagrams);
    for (((message, name), len), datagram) in described {
        // SAFETY: the first `count` messages and names were initialised above.
        let (message, name) = unsafe { (message.assume_init_ref(), name.assume_init_ref()) };
        *datagram = describe(message, name, len);
    }
    Ok(received)
}

/// Describes a datagram that the kernel has received.
fn describe(message: &libc::mmsghdr, name: &libc::sockaddr_in6, room: usize) -> Incoming {
    let header = &message.msg_hdr;
    let len = (message.msg_len as usize).min(room);
    let truncated = header.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0;
    let (source, source_port) = match i32::from(name.sin6_family) {
        libc::AF_INET => {
            // SAFETY: an address of this family has these fields; it is shorter than the storage, and has
            // no stricter alignment.
            let name = unsafe { &*(&raw const *name).cast::<libc::sockaddr_in>() };
            let address = Ipv4Addr::from(name.sin_addr.s_addr.to_ne_bytes());
            (IpAddr::from(address), u16::from_be(name.sin_port))
        }
        _ => (canonical(name.sin6_addr), u16::from_be(name.sin6_port)),
    };
    let mut datagram = Incoming { len, truncated, source, source_port, ..Incoming::default() };
    // SAFETY: the message has the control buffer that it was received with, and the length that the
    // kernel has written into it.
    let mut cursor = unsafe { libc::CMSG_FIRSTHDR(header) };
    while !cursor.is_null() {
        // SAFETY: a cursor that is not null points to a whole header in the control buffer.
        let (level, kind) = unsafe { ((*cursor).cmsg_level, (*cursor).cmsg_type) };
        match (level, kind) {
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                datagram.destination = value::<libc::in_pktinfo>(cursor)
                    .map(|it| Ipv4Addr::from(it.ipi_addr.s_addr.to_ne_bytes()).into());
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                datagram.destination =
                    value::<libc::in6_pktinfo>(cursor).map(|it| canonical(it.ipi6_addr));
            }
            // One byte here, an integer there.
            (libc::IPPROTO_IP, libc::IP_TOS) => {
                datagram.traffic_class = value::<u8>(cursor).unwrap_or(0);
            }
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                datagram.traffic_class = value::<i32>(cursor).unwrap_or(0) as u8;
            }
            (libc::SOL_UDP, libc::UDP_GRO) => {
                let segment_len = value::<i32>(cursor).and_then(|it| usize::try_from(it).ok());
                datagram.segment_len = segment_len.filter(|it| (1..len).contains(it));
            }
            _ => {}
        }
        // SAFETY: as for the first.
        cursor = unsafe { libc::CMSG_NXTHDR(header, cursor) };
    }
    datagram
}

/// Returns the value of a control message; `None` if it is too short.
fn value<T: Copy>(cursor: *const libc::cmsghdr) -> Option<T> {
    // SAFETY: the cursor points to a whole header; the value behind it may be unaligned, and is read only
    // if the message has its length. `T` is plain data.
    unsafe {
        let needed = libc::CMSG_LEN(mem::size_of::<T>() as libc::c_uint) as usize;
        if (*cursor).cmsg_len < needed as _ {
            return None;
        }
        Some(libc::CMSG_DATA(cursor).cast::<T>().read_unaligned())
    }
}

fn as_v6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

fn canonical(address: libc::in6_addr) -> IpAddr {
    Ipv6Addr::from(address.s6_addr).to_canonical()
}

/// Returns the number of datagrams that a socket has dropped because its buffer was full.
pub(crate) fn dropped(fd: BorrowedFd<'_>) -> io::Result<u64> {
    const DROPS: usize = 8;
    let mut values = [0_u32; DROPS + 1];
    let mut len = mem::size_of_val(&values) as libc::socklen_t;
    // SAFETY: `values` and `len` outlive the call, and `len` is the size of `values`.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            values.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if result == 0 { Ok(values[DROPS].into()) } else { Err(io::Error::last_os_error()) }
}
