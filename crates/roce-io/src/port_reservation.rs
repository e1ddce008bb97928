//! Keeps the kernel from responding for a UDP port that a packet socket serves.

mod owner;

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::AsFd,
};

use roce_wire::ROCE_V2_PORT;
use socket2::{Domain, Protocol, Type};

use crate::sys::socket::Socket;
use crate::{error::PortError, filter, sys};

/// Reserves a UDP port for IPv4 and IPv6, so that the kernel does not send *port unreachable* for
/// packets that a packet socket receives. Several reservations, also of different users, share one
/// port, which is free again when the last is dropped.
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

/// Configuration of a [`PortReservation`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortReservationConfig {
    /// The UDP port.
    pub port: u16,
    /// Accept whole trains, so that the kernel does not segment each one only to drop its packets,
    /// which costs two thirds of the throughput. Set it where trains arrive (veth, tap, bridge,
    /// `lo`), but not on a network card, where the kernel would merge packets of several senders.
    pub whole_trains: bool,
}

impl Default for PortReservationConfig {
    fn default() -> Self {
        Self { port: ROCE_V2_PORT, whole_trains: true }
    }
}

impl PortReservation {
    /// Reserves the port in this thread's network namespace.
    ///
    /// # Errors
    /// [`PortError::KernelRxe`] or [`PortError::OtherProgram`] if the port is taken.
    pub fn bind(config: &PortReservationConfig) -> Result<Self, PortError> {
        let port = config.port;
        let mut sockets = Vec::new();
        for address in [
            SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)),
            SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)),
        ] {
            match reserve(address, config.whole_trains) {
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

/// Returns why a port could not be bound.
pub(crate) fn explain_taken(port: u16) -> PortError {
    owner::explain(port)
}

fn reserve(address: SocketAddr, whole_trains: bool) -> Result<Socket, (&'static str, io::Error)> {
    let at = |step| move |error| (step, error);
    let socket = sys::socket::open(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))
        .map_err(at("opening a socket"))?;
    if address.is_ipv6() {
        socket.set_only_v6(true).map_err(at("keeping to IPv6"))?;
    }
    // The filter first, so that no packet is queued.
    socket.attach_filter(&filter::drop_all()).map_err(at("attaching a filter"))?;
    socket.set_reuse_address(true).map_err(at("sharing the port"))?;
    if whole_trains {
        sys::socket::set_int(socket.as_fd(), libc::SOL_UDP, libc::UDP_GRO, 1)
            .map_err(at("enabling whole trains"))?;
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
    fn several_reservations_share_a_port_and_free_it() {
        let config = free_port();
        let reservations =
            [PortReservation::bind(&config).unwrap(), PortReservation::bind(&config).unwrap()];
        assert!(UdpSocket::bind(("0.0.0.0", config.port)).is_err());
        drop(reservations);
        // A process started by another test has our sockets until its exec.
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
    fn packets_to_a_reserved_port_are_neither_rejected_nor_queued() {
        let config = free_port();
        let _reservation = PortReservation::bind(&config).unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.connect(("127.0.0.1", config.port)).unwrap();
        // An ICMP error arrives before `send` on lo returns, and the next call reports it.
        for _ in 0..3 {
            sender.send(b"into the void").unwrap();
        }
        sender.set_nonblocking(true).unwrap();
        assert_eq!(sender.recv(&mut [0; 8]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let reserved = owner::entries_of(Path::new("/"), config.port);
        assert!(
            !reserved.is_empty() && reserved.iter().all(|entry| entry.waiting == 0),
            "{reserved:?}"
        );
    }
}
