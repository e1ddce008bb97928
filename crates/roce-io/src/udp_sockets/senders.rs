//! The sockets that datagrams leave from: the ICRC covers the source port, so it is chosen before.

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
};

use rand::rngs::OsRng;
use rand::{Rng, TryRngCore};
use socket2::{Domain, Protocol, Type};

use crate::sys::socket::Socket;
use crate::{
    filter,
    sys::{self, udp::DEFAULT_HOP_LIMIT},
};

/// Sockets bound to some source ports, for the devices of one engine.
///
/// They have *path MTU discovery* set to *probe*: the kernel fragments nothing, and gives IPv4 packets the
/// identification 0, those of a train 0, 1, 2 and so on.
#[derive(Clone, Debug)]
pub struct UdpSenders(Arc<Sockets>);

#[derive(Debug)]
struct Sockets {
    /// Each with its port.
    all: Vec<(u16, Socket)>,
    is_v6: bool,
}

/// `UDP_NO_CHECK6_RX`, which libc lacks: datagrams over IPv6 may have a checksum of zero.
const UDP_NO_CHECK6_RX: i32 = 102;
/// Number of source ports: packets with different ones take different ways where several lead to the peer,
/// and go to different processes there.
const PORTS: usize = 16;
/// Ports that are tried for one that is free.
const MAX_TRIED: usize = 256;

impl UdpSenders {
    /// Binds sockets to random free ports of 49152 ..= 65535, in this thread's network namespace, with
    /// send buffers of `send_buffer_len` bytes if the system's limit permits.
    ///
    /// # Errors
    /// The kernel's; `AddrInUse` if no port was found that is free.
    pub fn open(send_buffer_len: usize) -> io::Result<Self> {
        // Not that of the thread, which a thread that ends has no more.
        let mut random = OsRng.unwrap_err();
        let (mut all, mut tried, mut is_v6) = (Vec::with_capacity(PORTS), 0, false);
        while all.len() < PORTS {
            let port = random.random_range(0xc000..=u16::MAX);
            match bind(port, None) {
                Ok((socket, is)) => {
                    prepare(&socket, is, send_buffer_len)?;
                    is_v6 = is;
                    all.push((port, socket));
                }
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && tried < MAX_TRIED => {
                    tried += 1;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Self(Arc::new(Sockets { all, is_v6 })))
    }

    /// Returns the source ports.
    pub fn ports(&self) -> Vec<u16> {
        self.0.all.iter().map(|(port, _)| *port).collect()
    }

    /// Returns a source port that no other senders of this network namespace have.
    pub(super) fn first_port(&self) -> u16 {
        self.0.all.first().map_or(0, |(port, _)| *port)
    }

    /// Returns the socket of a source port; `None` if there is none.
    pub(super) fn socket(&self, port: u16) -> Option<BorrowedFd<'_>> {
        let found = self.0.all.iter().find(|(known, _)| *known == port);
        found.map(|(_, socket)| socket.as_fd())
    }

    /// Returns true if the sockets are those of IPv6, which send IPv4, too.
    pub(super) fn is_v6(&self) -> bool {
        self.0.is_v6
    }
}

/// Binds a UDP socket to a port of all addresses, of IPv4 alone where the host has no IPv6. Returns whether
/// it is one of IPv6. With an interface, the port is shared with other sockets of the interface.
pub(super) fn bind(port: u16, interface: Option<&str>) -> io::Result<(Socket, bool)> {
    match bind_to((Ipv6Addr::UNSPECIFIED, port).into(), interface) {
        Ok(socket) => Ok((socket, true)),
        Err(error)
            if matches!(
                error.raw_os_error(),
                Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL | libc::EPFNOSUPPORT)
            ) =>
        {
            bind_to((Ipv4Addr::UNSPECIFIED, port).into(), interface).map(|socket| (socket, false))
        }
        Err(error) => Err(error),
    }
}

/// Binds a UDP socket to one address and port, as [`bind`] does to all.
pub(super) fn bind_to(address: SocketAddr, interface: Option<&str>) -> io::Result<Socket> {
    let domain = Domain::for_address(address);
    let socket = sys::socket::open(domain, Type::DGRAM, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    if let Some(interface) = interface {
        socket.bind_device(Some(interface.as_bytes()))?;
        // With processes of this user alone; SO_REUSEADDR would share it with all.
        socket.set_reuse_port(true)?;
        let fd = socket.as_fd();
        sys::socket::set_int(fd, libc::IPPROTO_IP, libc::IP_RECVTOS, 1)?;
        // Of groups that any socket of this host has joined.
        sys::socket::set_int(fd, libc::IPPROTO_IP, libc::IP_MULTICAST_ALL, 1)?;
        if address.is_ipv6() {
            let level = libc::IPPROTO_IPV6;
            sys::socket::set_int(fd, level, libc::IPV6_RECVPKTINFO, 1)?;
            sys::socket::set_int(fd, level, libc::IPV6_RECVTCLASS, 1)?;
            // RoCE's packets have no UDP checksum, over IPv6, too.
            sys::socket::set_int(fd, libc::SOL_UDP, UDP_NO_CHECK6_RX, 1)?;
        } else {
            sys::socket::set_int(fd, libc::IPPROTO_IP, libc::IP_PKTINFO, 1)?;
        }
    } else {
        // Nothing is received here.
        socket.attach_filter(&filter::drop_all())?;
    }
    socket.bind(&address.into())?;
    Ok(socket)
}

fn prepare(socket: &Socket, is_v6: bool, send_buffer_len: usize) -> io::Result<()> {
    let fd = socket.as_fd();
    let set = |level, name, value: i32| sys::socket::set_int(fd, level, name, value);
    let hops = i32::from(DEFAULT_HOP_LIMIT);
    set(libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE)?;
    set(libc::IPPROTO_IP, libc::IP_TTL, hops)?;
    set(libc::IPPROTO_IP, libc::IP_MULTICAST_TTL, hops)?;
    if is_v6 {
        set(libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE)?;
        set(libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS, hops)?;
        set(libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_HOPS, hops)?;
    }
    let len = i32::try_from(send_buffer_len).unwrap_or(i32::MAX);
    if set(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, len).is_err() {
        socket.set_send_buffer_size(send_buffer_len)?;
    }
    Ok(())
}
