//! Packet sockets, what an interface says of itself, and the processor we run on.

use std::ffi::CString;
use std::io;
use std::mem;
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// A packet socket that sends and receives frames behind virtio headers.
#[derive(Debug)]
pub(crate) struct PacketSocket {
    fd: OwnedFd,
}

impl PacketSocket {
    /// A socket that is not bound yet, with virtio headers, past the queueing discipline, deaf to
    /// what this host sends itself, and behind `filter`.
    pub(crate) fn new(filter: &[libc::sock_filter], qdisc_bypass: bool) -> io::Result<Self> {
        // SAFETY: no memory is involved.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel just gave us this descriptor, and no other value owns it.
        let socket = Self { fd: unsafe { OwnedFd::from_raw_fd(fd) } };
        let fd = socket.fd.as_fd();
        set(fd, libc::SOL_PACKET, libc::PACKET_VNET_HDR, &1)?;
        set(fd, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &1)?;
        set(fd, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &i32::from(qdisc_bypass))?;
        // Beyond the stock limit for processes with the right to. It does not matter much: what is
        // sent over a cable of the kernel's is gone when the call returns.
        let _ = set(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &SEND_BUFFER);
        let program = libc::sock_fprog {
            len: filter.len() as libc::c_ushort,
            filter: filter.as_ptr().cast_mut(),
        };
        set(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)?;
        Ok(socket)
    }

    /// Starts receiving every protocol of the interface with this number.
    pub(crate) fn bind(&self, interface: u32) -> io::Result<()> {
        // SAFETY: a socket address is plain data, for which all zeros is a value.
        let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
        address.sll_family = libc::AF_PACKET as libc::c_ushort;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = interface as i32;
        let len = mem::size_of_val(&address) as libc::socklen_t;
        // SAFETY: the kernel reads `len` bytes of `address`.
        let result = unsafe { libc::bind(self.fd.as_raw_fd(), (&raw const address).cast(), len) };
        ok(result).map(drop)
    }

    /// Sends one frame behind its virtio header.
    #[inline]
    pub(crate) fn send(&self, frame: &[u8]) -> io::Result<()> {
        // SAFETY: the kernel reads the bytes of `frame`.
        let sent =
            unsafe { libc::send(self.fd.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Sends the first [`MAX_BATCH`] frames, each behind its virtio header; returns how many the
    /// kernel took, at least one.
    pub(crate) fn send_many<'a>(
        &self,
        frames: impl Iterator<Item = &'a [u8]>,
    ) -> io::Result<usize> {
        // SAFETY: plain data, for which all zeros is a value.
        let (mut vectors, mut messages) = unsafe {
            (mem::zeroed::<[libc::iovec; MAX_BATCH]>(), mem::zeroed::<[libc::mmsghdr; MAX_BATCH]>())
        };
        let mut count = 0;
        for ((frame, vector), message) in frames.zip(&mut vectors).zip(&mut messages) {
            vector.iov_base = frame.as_ptr().cast_mut().cast();
            vector.iov_len = frame.len();
            message.msg_hdr.msg_iov = vector;
            message.msg_hdr.msg_iovlen = 1;
            count += 1;
        }
        // SAFETY: the first `count` messages point to one vector each, and those to frames that
        // outlive the call; the kernel only reads them.
        let sent = unsafe { libc::sendmmsg(self.fd.as_raw_fd(), messages.as_mut_ptr(), count, 0) };
        ok(sent).map(|sent| sent as usize)
    }

    /// Frames that found the ring full since the last call.
    pub(crate) fn take_dropped(&self) -> io::Result<u32> {
        let mut stats = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
        let mut len = mem::size_of_val(&stats) as libc::socklen_t;
        // SAFETY: `stats` and `len` outlive the call, and `len` is the size of `stats`.
        let result = unsafe {
            libc::getsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut stats).cast(),
                &raw mut len,
            )
        };
        ok(result).map(|_| stats.tp_drops)
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// What an interface says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) index: u32,
    pub(crate) mac: [u8; 6],
    pub(crate) mtu: usize,
}

/// Asks for an interface of this thread's network namespace.
pub(crate) fn interface(name: &str) -> io::Result<Interface> {
    let c_name = CString::new(name)?;
    // SAFETY: `c_name` is a string that ends in a zero byte.
    let index = unsafe { libc::if_nametoindex(c_name.as_ptr()) };
    // SAFETY: an `ifreq` is plain data, for which all zeros is a value.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    if index == 0 || name.len() >= request.ifr_name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    let mut ask = |command: libc::c_ulong| {
        // SAFETY: both commands that are used read and write one `ifreq`.
        ok(unsafe { libc::ioctl(socket.as_raw_fd(), command as _, &raw mut request) })?;
        Ok::<_, io::Error>(request.ifr_ifru)
    };
    // SAFETY: the kernel has filled in the MTU; any bytes make an integer.
    let mtu = unsafe { ask(libc::SIOCGIFMTU)?.ifru_mtu };
    // SAFETY: the kernel has filled in a socket address; any bytes make one.
    let address = unsafe { ask(libc::SIOCGIFHWADDR)?.ifru_hwaddr };
    let mut mac = [0; 6];
    for (to, from) in mac.iter_mut().zip(address.sa_data) {
        *to = from as u8;
    }
    Ok(Interface { index, mac, mtu: mtu.max(0) as usize })
}

/// Holds a UDP port for IPv4 with a socket that takes whole trains and lets nothing in, so that
/// the kernel neither answers for the port nor cuts trains to a port without a socket.
pub(crate) fn hold_udp_port(port: u16) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(("0.0.0.0", port))?;
    let nothing = [libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: 0 }];
    let program = libc::sock_fprog { len: 1, filter: nothing.as_ptr().cast_mut() };
    set(socket.as_fd(), libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)?;
    set(socket.as_fd(), libc::SOL_UDP, libc::UDP_GRO, &1)?;
    Ok(socket)
}

/// Sets an option of a socket.
pub(super) fn set<T>(fd: BorrowedFd<'_>, level: i32, name: i32, value: &T) -> io::Result<()> {
    let len = mem::size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel reads `len` bytes of `value`, and what a filter points to.
    let result =
        unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const *value).cast(), len) };
    ok(result).map(drop)
}

fn ok(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// The most frames that one call sends.
pub(crate) const MAX_BATCH: usize = 64;
const SEND_BUFFER: i32 = 16 << 20;
