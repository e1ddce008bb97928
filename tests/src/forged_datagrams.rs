//! Packets that an ordinary user makes: UDP sockets are all that it has to send them by.

use std::io;
use std::net::{IpAddr, SocketAddr};

use roce_wire::{Headers, ICRC_LEN, OuterHeaders, ROCE_V2_PORT, UdpChecksum, seal};
use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery};
use socket2::{Domain, Protocol, Socket, Type};

/// A way to send a datagram with a source address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Means {
    /// A socket that is bound to the source address.
    Bound,
    /// The same, connected to the destination.
    Connected,
    /// The same as the first, bound to an interface, too.
    Interface(&'static str),
    /// A socket that is bound to an address which the host need not have.
    Foreign,
}

/// Every way, on a host with the interfaces `eth0` and `lo`.
pub const EVERY_MEANS: [Means; 5] = [
    Means::Bound,
    Means::Connected,
    Means::Interface("eth0"),
    Means::Interface("lo"),
    Means::Foreign,
];

/// Sends packets with right ICRCs from one address to another, by a UDP socket.
#[derive(Debug)]
pub struct DatagramForger {
    socket: Socket,
    outer: OuterHeaders,
}

impl DatagramForger {
    /// Opens a socket in this thread's network namespace.
    ///
    /// # Errors
    /// The kernel's: it refuses some of these ways.
    pub fn new(means: Means, from: IpAddr, to: IpAddr) -> io::Result<Self> {
        let destination = SocketAddr::new(to, ROCE_V2_PORT);
        let domain = Domain::for_address(destination);
        let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
        match from {
            // The kernel then sends identification 0, which the ICRC covers.
            IpAddr::V4(_) => sockopt::set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::DO)?,
            IpAddr::V6(_) => {}
        }
        match means {
            Means::Interface(name) => socket.bind_device(Some(name.as_bytes()))?,
            Means::Foreign if from.is_ipv4() => socket.set_freebind_v4(true)?,
            Means::Foreign => socket.set_freebind_v6(true)?,
            Means::Bound | Means::Connected => {}
        }
        socket.bind(&SocketAddr::new(from, 0).into())?;
        // A first datagram shows whether the kernel sends from this address. It is no packet.
        socket.send_to(&[0], &destination.into())?;
        if means == Means::Connected {
            socket.connect(&destination.into())?;
        }
        let source_port = socket.local_addr()?.as_socket().expect("it is one of UDP").port();
        Ok(Self { socket, outer: OuterHeaders { source_port, ..OuterHeaders::new(from, to) } })
    }

    /// Sends a packet.
    ///
    /// # Panics
    /// When the payload does not fit into a packet.
    pub fn send(&self, headers: &Headers, payload: &[u8]) -> io::Result<()> {
        let start = self.outer.len();
        let mut packet = vec![0; headers.len() + payload.len() + 4 + ICRC_LEN];
        packet[headers.len()..][..payload.len()].copy_from_slice(payload);
        let len = headers.emit_around(&mut packet, payload.len());
        let mut frame = vec![0; start];
        frame.extend_from_slice(&packet[..len]);
        seal(&self.outer, 0, &mut frame, len, UdpChecksum::Zero).expect("one packet");
        match self.socket.peer_addr() {
            Ok(_) => self.socket.send(&frame[start..])?,
            Err(_) => {
                let to = SocketAddr::new(self.outer.destination, ROCE_V2_PORT);
                self.socket.send_to(&frame[start..], &to.into())?
            }
        };
        Ok(())
    }
}
