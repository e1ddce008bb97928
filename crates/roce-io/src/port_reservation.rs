//! Keeps the kernel from answering for a UDP port that a packet socket serves.

mod owner;

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::AsFd,
};

use socket2::{Domain, Protocol, Socket, Type};

use crate::{ROCE_UDP_PORT, error::PortError, filter, sys};

/// Holds a UDP port for IPv4 and IPv6, and reads nothing from it, so that the kernel does not
/// answer *port unreachable* to packets that a packet socket receives. Several reservations, of one
/// user or of many, share one port. The port is free again when the last is dropped.
///
/// ```
/// use roce_io::{PortReservation, PortReservationConfig};
///
/// # let free = std::net::UdpSocket::bind("0.0.0.0:0")?.local_addr()?.port();
/// # let config = PortReservationConfig { port: free, ..PortReservationConfig::default() };
/// # /*
/// let config = PortReservationConfig::default(); // RoCE's port
/// # */
/// let reservation = PortReservation::bind(&config)?;
/// let another = PortReservation::bind(&config)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct PortReservation {
    _sockets: Vec<Socket>,
}

/// Which port to hold, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortReservationConfig {
    /// The UDP port.
    pub port: u16,
    /// Take whole trains, so that the kernel does not cut each one just to drop its packets: that
    /// costs two thirds of the speed. Wanted where trains arrive (veth, tap, bridge, `lo`). On a
    /// real card it lets the kernel merge packets of several senders, so leave it off there.
    pub whole_trains: bool,
}

impl Default for PortReservationConfig {
    fn default() -> Self {
        Self { port: ROCE_UDP_PORT, whole_trains: true }
    }
}

impl PortReservation {
    /// Holds the port in this thread's network namespace.
    ///
    /// # Errors
    /// [`PortError::KernelRxe`] or [`PortError::OtherProgram`] when the port is taken.
    pub fn bind(config: &PortReservationConfig) -> Result<Self, PortError> {
        let port = config.port;
        let mut sockets = Vec::new();
        for address in [
            SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)),
            SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)),
        ] {
            match hold(address, config.whole_trains) {
                Ok(socket) => sockets.push(socket),
                Err((_, error)) if address.is_ipv6() && is_without_ipv6(&error) => {}
                Err((_, error)) if error.kind() == io::ErrorKind::AddrInUse => {
                    return Err(owner::explain(port));
                }
                Err((step, source)) => return Err(PortError::Os { port, step, source }),
            }
        }
        Ok(Self { _sockets: sockets })
    }
}

fn hold(address: SocketAddr, whole_trains: bool) -> Result<Socket, (&'static str, io::Error)> {
    let at = |step| move |error| (step, error);
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))
        .map_err(at("opening a socket"))?;
    if address.is_ipv6() {
        socket.set_only_v6(true).map_err(at("keeping to IPv6"))?;
    }
    // The filter first: no packet is ever queued where nobody reads.
    socket.attach_filter(&filter::drop_all()).map_err(at("attaching a filter"))?;
    socket.set_reuse_address(true).map_err(at("sharing the port"))?;
    if whole_trains {
        sys::socket::set_int(socket.as_fd(), libc::SOL_UDP, libc::UDP_GRO, 1)
            .map_err(at("asking for whole trains"))?;
    }
    socket.bind(&address.into()).map_err(at("binding a socket"))?;
    Ok(socket)
}

fn is_without_ipv6(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL))
}

#[cfg(test)]
mod tests {
    use std::{
        net::UdpSocket,
        path::Path,
        time::{Duration, Instant},
    };

    use super::*;

    fn free_port() -> PortReservationConfig {
        let port = UdpSocket::bind("0.0.0.0:0").unwrap().local_addr().unwrap().port();
        PortReservationConfig { port, ..PortReservationConfig::default() }
    }

    #[test]
    fn several_holders_share_a_port_and_leave_it_free() {
        let config = free_port();
        let reservations =
            [PortReservation::bind(&config).unwrap(), PortReservation::bind(&config).unwrap()];
        assert!(UdpSocket::bind(("0.0.0.0", config.port)).is_err());
        drop(reservations);
        // A program that another test starts has our sockets for as long as it takes to start.
        let deadline = Instant::now() + Duration::from_secs(10);
        while let Err(error) = UdpSocket::bind(("0.0.0.0", config.port)) {
            assert!(Instant::now() < deadline, "{error}");
            std::thread::yield_now();
        }
    }

    #[test]
    fn another_program_on_the_port_is_named() {
        for address in ["0.0.0.0:0", "127.0.0.1:0", "[::1]:0"] {
            let Ok(program) = UdpSocket::bind(address) else { continue };
            let port = program.local_addr().unwrap().port();
            let error = PortReservation::bind(&PortReservationConfig { port, whole_trains: false });
            let Err(PortError::OtherProgram { owner: Some(owner), .. }) = error else {
                panic!("{error:?}");
            };
            assert!(owner.starts_with(&format!("process {} ", std::process::id())), "{owner}");
        }
    }

    #[test]
    fn a_held_port_is_neither_answered_for_nor_queued() {
        let config = free_port();
        let _reservation = PortReservation::bind(&config).unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.connect(("127.0.0.1", config.port)).unwrap();
        // An ICMP answer comes before `send` on lo returns, and the next call reports it.
        for _ in 0..3 {
            sender.send(b"into the void").unwrap();
        }
        sender.set_nonblocking(true).unwrap();
        assert_eq!(sender.recv(&mut [0; 8]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let held = owner::entries_of(Path::new("/"), config.port);
        assert!(!held.is_empty() && held.iter().all(|entry| entry.waiting == 0), "{held:?}");
    }
}
