//! Sockets for what single source ports of peers send here. The kernel prefers them to the sockets that share
//! the port, so these packets come to their process at once, and not by way of another.

use std::{
    io, mem,
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, BorrowedFd},
};

use roce_wire::ROCE_V2_PORT;
use socket2::SockFilter;

use super::{headers::Headers, senders, setup::Setup};
use crate::sys::socket::Socket;
use crate::{
    InterfaceInfo,
    sys::{passing::AnyReadable, udp},
};

/// Sockets at most, in an epoll set of 64.
pub(super) const MAX_PEERS: usize = 32;
/// After so many packets that others pass on, the next source without a socket gets one.
const PASSED_PER_SOCKET: u32 = 16;
/// The same while one has to be closed for it.
const PASSED_PER_REPLACEMENT: u32 = 1024;

/// Sources that have a socket of their own.
///
/// A source is noticed by the packets that other processes pass on. Some of these have to come between two
/// sockets, so that sources that send much get theirs soon, and forged ones, of which each packet may have
/// another source, close others seldom. Without a socket packets are passed on as before.
#[derive(Debug, Default)]
pub(super) struct Peers {
    /// The place is the number in the epoll set.
    all: Vec<Peer>,
    /// The next place that is used again.
    next: usize,
    /// Packets passed on since a source was found worth a socket.
    passed: u32,
    /// What closed sockets have dropped.
    dropped: u64,
}

#[derive(Debug)]
struct Peer {
    source: Source,
    socket: Socket,
}

/// Where packets come from, and the address of this host that they are sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Source {
    address: SocketAddr,
    destination: IpAddr,
}

impl Source {
    /// Returns the source of a frame.
    pub(super) fn of(headers: Headers) -> Self {
        let address = SocketAddr::new(headers.source, headers.source_port);
        Self { address, destination: headers.destination }
    }

    /// Returns true if it is this host itself, by the addresses of an interface.
    pub(super) fn is_here(&self, interface: &InterfaceInfo) -> bool {
        interface.addresses.iter().any(|it| it.address == self.address.ip())
    }
}

impl Peers {
    /// Returns true if there is no socket.
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns the socket of a number.
    pub(super) fn socket(&self, number: usize) -> Option<BorrowedFd<'_>> {
        self.all.get(number).map(|peer| peer.socket.as_fd())
    }

    /// Notes that a packet was passed on. Returns true if its source shall get a socket.
    pub(super) fn on_passed(&mut self, source: &Source) -> bool {
        let each =
            if self.replaced().is_some() { PASSED_PER_REPLACEMENT } else { PASSED_PER_SOCKET };
        self.passed = self.passed.saturating_add(1);
        // What has a socket and is passed on nevertheless comes from a source that another process has a
        // socket for, too, and the kernel prefers that.
        let is_wanted = self.passed >= each && self.all.iter().all(|peer| peer.source != *source);
        if is_wanted {
            self.passed = 0;
        }
        is_wanted
    }

    /// Returns the number of the socket that the next one replaces, which is best empty then.
    pub(super) fn replaced(&self) -> Option<usize> {
        (self.all.len() == MAX_PEERS).then_some(self.next)
    }

    /// Gives every socket another filter.
    pub(super) fn attach_filter(&self, filter: &[SockFilter]) -> io::Result<()> {
        self.all.iter().try_for_each(|peer| peer.socket.attach_filter(filter))
    }

    /// Opens a socket for a source.
    pub(super) fn open(
        &mut self,
        source: Source,
        setup: Setup<'_>,
        any: &AnyReadable,
    ) -> io::Result<()> {
        let to = (source.destination, ROCE_V2_PORT).into();
        let socket = senders::bind_to(to, Some(&setup.interface.name))?;
        setup.prepare(&socket)?;
        socket.connect(&source.address.into())?;
        let number = self.replaced().unwrap_or(self.all.len());
        any.add(socket.as_fd(), number as u32)?;
        let peer = Peer { source, socket };
        match self.all.get_mut(number) {
            Some(place) => {
                let old = mem::replace(place, peer);
                self.dropped += udp::dropped(old.socket.as_fd()).unwrap_or(0);
                self.next = (self.next + 1) % MAX_PEERS;
                any.remove(old.socket.as_fd())
            }
            None => {
                self.all.push(peer);
                Ok(())
            }
        }
    }

    /// Returns the number of sockets, and the number of packets that they had no room for.
    pub(super) fn counters(&self) -> (u64, u64) {
        let open = self.all.iter().map(|peer| udp::dropped(peer.socket.as_fd()).unwrap_or(0));
        (self.all.len() as u64, self.dropped + open.sum::<u64>())
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, UdpSocket};

    use roce_netns::{Link, VirtualNetwork};
    use roce_test_macros::tier1;

    use super::*;
    use crate::interfaces::find_interface;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 1, 0, 1));

    /// Two more than have room send a datagram each.
    #[tier1]
    fn the_last_sources_have_sockets_which_alone_get_what_these_send() {
        let network = VirtualNetwork::new().unwrap();
        let [here, there] = ["here", "there"].map(|name| network.host(name).unwrap());
        network.veth((&here, "eth0"), (&there, "eth0"), Link { mtu: 1500 }).unwrap();
        here.address("eth0", "10.1.0.1/24".parse().unwrap()).unwrap();
        there.address("eth0", "10.1.0.2/24".parse().unwrap()).unwrap();
        let bind = || UdpSocket::bind("10.1.0.2:0").unwrap();
        let senders: Vec<_> =
            there.run(move || (0..MAX_PEERS + 2).map(|_| bind()).collect::<Vec<_>>());
        let sources: Vec<_> = senders
            .iter()
            .map(|it| Source { address: it.local_addr().unwrap(), destination: HERE })
            .collect();
        let (any, shared, peers) = here.run(move || {
            let any = AnyReadable::new().unwrap();
            let (shared, _) = senders::bind(ROCE_V2_PORT, Some("eth0")).unwrap();
            any.add(shared.as_fd(), MAX_PEERS as u32).unwrap();
            let mut peers = Peers::default();
            let interface = find_interface("eth0").unwrap();
            let setup = Setup { interface: &interface, buffer_len: 1 << 16, filter: &[] };
            for source in sources {
                peers.open(source, setup, &any).unwrap();
            }
            (any, shared, peers)
        });
        assert_eq!((peers.all.len(), peers.replaced()), (MAX_PEERS, Some(2)));
        let mut byte = [0];
        for (number, sender) in senders.iter().enumerate() {
            sender.send_to(&[number as u8], (HERE, ROCE_V2_PORT)).unwrap();
            let place = match number {
                0 | 1 => MAX_PEERS,
                _ => number % MAX_PEERS,
            };
            // A veth has carried the datagram when the call returns, or does so at once.
            let mut readable = 0;
            while readable == 0 {
                readable = any.readable().unwrap();
            }
            assert_eq!(readable, 1 << place, "source {number}");
            let socket = peers.all.get(place).map_or(&shared, |peer| &peer.socket);
            assert_eq!(io::Read::read(&mut &**socket, &mut byte).unwrap(), 1);
            assert_eq!(usize::from(byte[0]), number);
        }
    }

    #[test]
    fn a_socket_is_worth_some_packets_and_a_replacement_many() {
        let source =
            |port| Source { address: (Ipv4Addr::new(10, 1, 0, 2), port).into(), destination: HERE };
        let mut peers = Peers::default();
        let mut wanted = |count: u32| (0..count).filter(|_| peers.on_passed(&source(1))).count();
        assert_eq!((wanted(15), wanted(1), wanted(160)), (0, 1, 10));
    }
}
