//! Keeps the kernel from responding for a UDP port that a packet socket serves.

mod holders;
mod owner;

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::AsFd,
    path::Path,
    time::Duration,
};

use roce_wire::ROCE_V2_PORT;
use socket2::{Domain, Protocol, Type};

use self::{holders::holders_of, owner::ROOT};
use crate::sys::socket::Socket;
use crate::{error::PortError, filter, sys};

/// Reserves a UDP port for IPv4 and IPv6: the kernel does not send *port unreachable* for packets that a packet
/// socket receives, and no other user's socket gets a copy of them. Reservations of one user share the port,
/// which is free again when the last is dropped.
///
/// The port belongs to all addresses and interfaces, also those that the host gets later. Beside sockets of
/// another user it can be had by none but them, so [`bind`](Self::bind) fails; beside those of the superuser, who
/// may read all packets anyway, a reservation leaves the port to them if one has all addresses, and
/// [takes it](Self::take_if_free) as soon as it is free.
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
/// assert_eq!(reservation.holder(), None, "this process has the port");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct PortReservation {
    config: PortReservationConfig,
    state: State,
}

#[derive(Debug)]
enum State {
    /// The socket has the port.
    Held { _socket: Socket },
    /// This user has it.
    LeftTo(u32),
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
    /// Leave the port to any user that has it: all of them may read the packets, and are trusted. Default
    /// `false`.
    pub trusts_others: bool,
}

impl Default for PortReservationConfig {
    fn default() -> Self {
        Self { port: ROCE_V2_PORT, whole_trains: true, trusts_others: false }
    }
}

/// Times that the port is tried again while its holder changes.
const RETRIES: usize = 8;

impl PortReservation {
    /// Reserves the port in this thread's network namespace.
    ///
    /// # Errors
    /// [`PortError::OtherUser`] if a socket of another user has the port, on whatever address or interface;
    /// [`PortError::KernelRxe`] or [`PortError::OtherProgram`] if a program has it that does not share it.
    pub fn bind(config: &PortReservationConfig) -> Result<Self, PortError> {
        Ok(Self { config: *config, state: State::reserve(config)? })
    }

    /// Returns the user that the port is left to; `None` if this process has it.
    pub fn holder(&self) -> Option<u32> {
        match self.state {
            State::Held { .. } => None,
            State::LeftTo(user) => Some(user),
        }
    }

    /// Takes the port if it was left to another user and is free now, in this thread's network namespace.
    /// Returns true if this process has it. Costs some microseconds.
    ///
    /// # Errors
    /// As [`recheck`](Self::recheck).
    pub fn take_if_free(&mut self) -> Result<bool, PortError> {
        if self.holder().is_none() {
            return Ok(true);
        }
        // Kept until the port is taken, so that no other user has it in between.
        let Ok(_held) = reserve(&self.config) else { return Ok(false) };
        self.recheck()
    }

    /// As [`take_if_free`](Self::take_if_free); looks for the user that has the port, which costs a fraction of
    /// a millisecond.
    ///
    /// # Errors
    /// As [`bind`](Self::bind): another user has taken the port meanwhile, and gets copies of packets.
    pub fn recheck(&mut self) -> Result<bool, PortError> {
        if self.holder().is_some() {
            self.state = State::reserve(&self.config)?;
        }
        Ok(self.holder().is_none())
    }
}

impl State {
    fn reserve(config: &PortReservationConfig) -> Result<Self, PortError> {
        let port = config.port;
        let own = sys::passing::effective_user();
        for _ in 0..=RETRIES {
            let bound = match reserve(config) {
                Ok(socket) => Some(socket),
                Err((_, error)) if error.kind() == io::ErrorKind::AddrInUse => None,
                Err((step, source)) => return Err(PortError::Os { port, step, source }),
            };
            // The kernel lets sockets of several users have one port in corners: it compares a new one with the
            // sockets of its own address only once more than ten ports fall into one place of its table, and
            // with none after the first of the same user.
            let holders = holders_of(port).map_err(|source| PortError::Os {
                port,
                step: "listing its sockets",
                source,
            })?;
            let others: Vec<_> = holders.iter().filter(|holder| holder.uid != own).collect();
            let suspect = others.iter().find(|holder| holder.uid != ROOT);
            if let Some(suspect) = suspect.filter(|_| !config.trusts_others) {
                return Err(PortError::OtherUser { port, uid: suspect.uid });
            }
            if let Some(socket) = bound {
                return Ok(Self::Held { _socket: socket });
            }
            if holders.is_empty() {
                // The one that had it has just ended.
                continue;
            }
            if others.is_empty() || owner::is_rxes() {
                return Err(owner::explain(port));
            }
            // One of IPv6 has the port of IPv4, too, as that of a reservation.
            let mut covering = others.iter().filter(|other| other.has_all);
            if let Some(holder) = covering.find(|other| other.is_v6 || !has_ipv6()) {
                return Ok(Self::LeftTo(holder.uid));
            }
            // Another process may be about to bind the rest of its sockets.
            std::thread::sleep(Duration::from_millis(1));
        }
        Err(owner::explain(port))
    }
}

/// Returns why a port could not be bound, or could not be left to another user.
pub(crate) fn explain_taken(port: u16) -> PortError {
    let own = sys::passing::effective_user();
    let holders = holders_of(port).unwrap_or_default();
    match holders.iter().find(|holder| holder.uid != own && holder.uid != ROOT) {
        Some(other) => PortError::OtherUser { port, uid: other.uid },
        None => owner::explain(port),
    }
}

/// Binds a socket to the port of all addresses: one of IPv6, which has that of IPv4 too, unless the host has none.
fn reserve(config: &PortReservationConfig) -> Result<Socket, (&'static str, io::Error)> {
    match reserve_on((Ipv6Addr::UNSPECIFIED, config.port).into(), config.whole_trains) {
        Err((_, error)) if is_without_ipv6(&error) => {
            reserve_on((Ipv4Addr::UNSPECIFIED, config.port).into(), config.whole_trains)
        }
        reserved => reserved,
    }
}

fn reserve_on(
    address: SocketAddr,
    whole_trains: bool,
) -> Result<Socket, (&'static str, io::Error)> {
    let at = |step| move |error| (step, error);
    let socket = sys::socket::open(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))
        .map_err(at("opening a socket"))?;
    if address.is_ipv6() {
        socket.set_only_v6(false).map_err(at("taking IPv4"))?;
    }
    // The filter first, so that no packet is queued.
    socket.attach_filter(&filter::drop_all()).map_err(at("attaching a filter"))?;
    // With processes of this user alone; SO_REUSEADDR would share it with all.
    socket.set_reuse_port(true).map_err(at("sharing the port"))?;
    if whole_trains {
        sys::socket::set_int(socket.as_fd(), libc::SOL_UDP, libc::UDP_GRO, 1)
            .map_err(at("enabling whole trains"))?;
    }
    bind_apart(&socket, address).map_err(at("binding a socket"))?;
    Ok(socket)
}

/// Binds a socket to a port of all addresses and interfaces, so that the kernel gives it only packets for which it
/// finds no better one: those of UDP back ends are bound to their interfaces.
///
/// The kernel gives a packet to the first *group* with SO_REUSEPORT that it finds, whatever fits better, and makes
/// one of all sockets that are bound to the same. This one belongs to `lo` while it is bound, and to no group
/// afterwards.
fn bind_apart(socket: &Socket, address: SocketAddr) -> io::Result<()> {
    socket.bind_device(Some(b"lo"))?;
    socket.bind(&address.into())?;
    if socket.bind_device(None).is_ok() {
        return Ok(());
    }
    // Without CAP_NET_RAW: the end of a connection is the end of that, too. Then the kernel answers packets of IPv6
    // for which there is no better socket.
    let peers: [SocketAddr; 2] = match address {
        SocketAddr::V4(_) => [(Ipv4Addr::LOCALHOST, 1).into(); 2],
        SocketAddr::V6(_) => {
            [(Ipv4Addr::LOCALHOST.to_ipv6_mapped(), 1).into(), (Ipv6Addr::LOCALHOST, 1).into()]
        }
    };
    peers.into_iter().map(|peer| socket.connect(&peer.into())).find(Result::is_ok).unwrap_or_else(
        || {
            let source = io::Error::from(io::ErrorKind::NetworkUnreachable);
            Err(io::Error::new(source.kind(), "lo is down; bring it up: ip link set lo up"))
        },
    )?;
    socket.connect(&sys::socket::no_peer())
}

fn is_without_ipv6(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL | libc::EPFNOSUPPORT)
    )
}

fn has_ipv6() -> bool {
    Path::new("/proc/sys/net/ipv6").exists()
}

#[cfg(test)]
mod tests {
    use std::{net::UdpSocket, time::Instant};

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
            let error = PortReservation::bind(&PortReservationConfig {
                port,
                whole_trains: false,
                ..PortReservationConfig::default()
            });
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
