//! Sockets that no library in the program takes for its own.
//!
//! librspreload, which is loaded before the C library, replaces its functions for sockets: `socket` makes a
//! socket over RDMA, which is no descriptor of the kernel's. Here sockets are made by the system call, for
//! this process's own needs; see `sys/socket.rs`.
//!
//! ```
//! use roce_io::sockets;
//!
//! let name = format!("roce-io/example/{}", std::process::id());
//! let socket = sockets::bind_abstract(&name)?;
//! assert!(sockets::is_abstract_bound(&name));
//! drop(socket);
//! assert!(!sockets::is_abstract_bound(&name));
//! # Ok::<(), std::io::Error>(())
//! ```

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;

use socket2::{Domain, Protocol, SockAddr, Type};

use crate::process::Own;
use crate::sys::socket::Socket;
use crate::sys::{self, socket::open};

/// Binds a UDP socket to an address of this thread's network namespace.
///
/// # Errors
/// The kernel's, such as that the address is in use.
pub fn bind_udp(address: SocketAddr) -> io::Result<Own<UdpSocket>> {
    let socket = open(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    socket.bind(&address.into())?;
    Ok(socket.map(Into::into))
}

/// Binds a datagram socket to an abstract name of this thread's network namespace. The name is free again
/// when the socket is closed.
///
/// # Errors
/// `AddrInUse` if the name is bound; the kernel's otherwise.
pub fn bind_abstract(name: &str) -> io::Result<Own<UnixDatagram>> {
    Unnamed::new()?.bind(name).map_err(|(_, error)| error)
}

/// A datagram socket without a name, which can be bound to an abstract name of the network namespace of the
/// thread that made it, from whatever namespace.
#[derive(Debug)]
pub struct Unnamed(Socket);

impl Unnamed {
    /// Makes one of this thread's network namespace.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new() -> io::Result<Self> {
        open(Domain::UNIX, Type::DGRAM, None).map(Self)
    }

    /// Binds it, unless the name is bound already. The name is free again when the result is closed.
    ///
    /// # Errors
    /// `AddrInUse` if the name is bound; the kernel's otherwise. The socket comes back.
    pub fn bind(self, name: &str) -> Result<Own<UnixDatagram>, (Self, io::Error)> {
        match abstract_address(name).and_then(|address| self.0.bind(&address)) {
            Ok(()) => Ok(self.0.map(Into::into)),
            Err(error) => Err((self, error)),
        }
    }
}

impl AsFd for Unnamed {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Returns the kernel's number of a socket's network namespace, which Linux 5.14 and later tell.
pub fn namespace_of(socket: impl AsFd) -> Option<u64> {
    sys::socket::namespace_cookie(socket.as_fd()).ok()
}

/// Returns true if a datagram socket is bound to an abstract name of this thread's network namespace.
pub fn is_abstract_bound(name: &str) -> bool {
    NameLookup::default().is_bound(name)
}

/// Looks up abstract names of one network namespace, many of them with one socket.
///
/// ```
/// use roce_io::sockets::{self, NameLookup};
///
/// let name = format!("roce-io/lookup/{}", std::process::id());
/// let mut lookup = NameLookup::default();
/// assert!(!lookup.is_bound(&name));
/// let _socket = sockets::bind_abstract(&name)?;
/// assert!(lookup.is_bound(&name));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct NameLookup {
    /// Not connected.
    socket: Option<Socket>,
}

impl NameLookup {
    /// Returns true if a datagram socket is bound to the name, in the network namespace of the thread that
    /// asked first.
    pub fn is_bound(&mut self, name: &str) -> bool {
        let kept = self.socket.take();
        let made = kept.map_or_else(|| open(Domain::UNIX, Type::DGRAM, None), Ok);
        let (Ok(socket), Ok(address)) = (made, abstract_address(name)) else { return false };
        let is_bound = socket.connect(&address).is_ok();
        // A connected socket is not kept: it would receive what the other sends to it.
        self.socket = (!is_bound).then_some(socket);
        is_bound
    }
}

/// Returns the address of an abstract name.
pub(crate) fn abstract_address(name: &str) -> io::Result<SockAddr> {
    SockAddr::unix(format!("\0{name}"))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::linux::net::SocketAddrExt;

    use super::*;

    #[test]
    fn an_abstract_name_is_bound_to_one_socket_at_a_time() {
        let name = format!("roce-io/sockets/{}", std::process::id());
        let socket = bind_abstract(&name).unwrap();
        let bound = socket.local_addr().unwrap();
        assert_eq!(bound.as_abstract_name(), Some(name.as_bytes()), "the name is that and no more");
        assert_eq!(bind_abstract(&name).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert!(is_abstract_bound(&name) && !is_abstract_bound(&name[1..]));
        drop(socket);
        assert!(!is_abstract_bound(&name) && bind_abstract(&name).is_ok());
    }

    #[test]
    fn sockets_of_one_thread_are_of_one_namespace() {
        let of_new = || namespace_of(Unnamed::new().unwrap().0);
        assert_eq!(of_new(), of_new());
        assert_ne!(of_new(), Some(0));
    }

    #[test]
    fn a_name_that_is_too_long_is_refused() {
        assert!(bind_abstract(&"x".repeat(200)).is_err());
        assert!(!is_abstract_bound(&"x".repeat(200)));
    }

    #[test]
    fn names_are_looked_up_with_one_socket_until_one_is_bound() {
        let name = format!("roce-io/sockets/lookup/{}", std::process::id());
        let mut lookup = NameLookup::default();
        let descriptor = |lookup: &NameLookup| lookup.socket.as_ref().map(AsRawFd::as_raw_fd);
        assert!(!lookup.is_bound(&name));
        let first = descriptor(&lookup);
        assert!(first.is_some() && !lookup.is_bound(&name[1..]));
        assert_eq!(descriptor(&lookup), first);
        let bound = bind_abstract(&name).unwrap();
        assert!(lookup.is_bound(&name) && lookup.is_bound(&name));
        drop(bound);
        assert!(!lookup.is_bound(&name));
    }

    #[test]
    fn datagrams_pass_between_udp_sockets() {
        let receiver = bind_udp("127.0.0.1:0".parse().unwrap()).unwrap();
        let sender = bind_udp("127.0.0.1:0".parse().unwrap()).unwrap();
        sender.send_to(b"datagram", receiver.local_addr().unwrap()).unwrap();
        let mut space = [0; 16];
        assert_eq!(receiver.recv_from(&mut space).unwrap(), (8, sender.local_addr().unwrap()));
        assert_eq!(&space[..8], b"datagram");
    }
}
