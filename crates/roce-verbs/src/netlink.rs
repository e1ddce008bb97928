//! What the kernel knows of the way to a peer: routes and neighbours, through rtnetlink.
//!
//! The stack speaks no ARP and no neighbour discovery: it asks the kernel, which does,
//! and so gateways, static entries and whatever else the system was told just work.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_REQUEST};
use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, protocols::NETLINK_ROUTE};
use nix::poll::{PollFd, PollFlags, PollTimeout};
use roce_wire::MacAddr;

use crate::core::assert_engine_unlocked;

/// How a packet for some address leaves this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextHop {
    /// The address is one of this host's own: the packet never reaches a wire.
    ThisHost,
    /// Over the interface, to the station with this address.
    Station(MacAddr),
}

/// Why no way to a peer was found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RouteError {
    /// The kernel would not talk about routes.
    #[error("the kernel refused a routing question ({0}); is netlink allowed in this sandbox?")]
    Netlink(#[source] io::Error),
    /// No route to the address.
    #[error(
        "no route to {destination} over {interface}: add an address or a route (`ip route get {destination}` shows what the kernel would do)"
    )]
    NoRoute {
        /// Who was to be reached.
        destination: IpAddr,
        /// The interface's name.
        interface: String,
    },
    /// The next hop did not answer the kernel's ARP or neighbour solicitation.
    #[error(
        "{next_hop} does not answer on {interface} (ARP or neighbour discovery failed): is the peer up, and on this network?"
    )]
    NoNeighbour {
        /// The station that was asked.
        next_hop: IpAddr,
        /// The interface's name.
        interface: String,
    },
}

/// How long the kernel is given to resolve a neighbour: it asks three times, a second apart.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(4);

/// The multicast group that tells of neighbours, as a bit.
const GROUP_NEIGHBOURS: u32 = 1 << 2;
/// The groups that tell of links, neighbours, and addresses of either family, as bits.
const GROUPS_OF_NEWS: u32 = 1 | GROUP_NEIGHBOURS | 1 << 4 | 1 << 8;

/// The kernel's knowledge of one interface's surroundings.
///
/// Its sockets belong to the network namespace in which it was opened, whichever thread
/// asks later.
#[derive(Debug)]
pub(crate) struct Surroundings {
    questions: Netlink,
    news: Netlink,
    name: String,
    index: u32,
}

impl Surroundings {
    /// Opens the conversation, in this thread's network namespace.
    pub(crate) fn open(name: &str, index: u32) -> Result<Self, RouteError> {
        let (questions, news) = (Netlink::open(0)?, Netlink::open(GROUP_NEIGHBOURS)?);
        Ok(Self { questions, news, name: name.to_owned(), index })
    }

    /// Finds the way from `source` over the interface to `destination`, waking the
    /// kernel's own resolution where the neighbour is not known yet. Waits up to four
    /// seconds.
    pub(crate) fn next_hop(
        &mut self,
        source: IpAddr,
        destination: IpAddr,
    ) -> Result<NextHop, RouteError> {
        let Some(route) = self.route_to(destination)? else {
            return Err(RouteError::NoRoute { destination, interface: self.name.clone() });
        };
        if route.header.kind == RouteType::Local {
            return Ok(NextHop::ThisHost);
        }
        let next_hop = gateway_of(&route).unwrap_or(destination);
        self.resolve(source, next_hop).map(NextHop::Station)
    }

    /// The kernel's route to `destination`, over this interface where there is a choice.
    fn route_to(&mut self, destination: IpAddr) -> Result<Option<RouteMessage>, RouteError> {
        // Without naming the interface first: the kernel takes *any* address for a
        // neighbour's when it is told where to look for it.
        let Some(route) = self.questions.route(None, destination)? else { return Ok(None) };
        let refused = matches!(route.header.kind, RouteType::Unreachable | RouteType::BlackHole);
        let here = route.attributes.contains(&RouteAttribute::Oif(self.index));
        match route.header.kind {
            _ if refused => Ok(None),
            RouteType::Local => Ok(Some(route)),
            _ if here => Ok(Some(route)),
            // Another interface has the better one, as with two on one network.
            _ => self.questions.route(Some(self.index), destination),
        }
    }

    /// The station that packets to `destination` go to now, where the kernel knows it;
    /// never waits.
    pub(crate) fn station(&mut self, destination: IpAddr) -> Option<MacAddr> {
        let route = self.route_to(destination).ok()??;
        let next_hop = gateway_of(&route).unwrap_or(destination);
        self.questions.neighbour(self.index, next_hop).ok()?
    }

    /// The station behind `next_hop`, resolved by the kernel.
    fn resolve(&mut self, source: IpAddr, next_hop: IpAddr) -> Result<MacAddr, RouteError> {
        let deadline = Instant::now() + RESOLVE_TIMEOUT;
        let mut asked = false;
        loop {
            if let Some(mac) = self.questions.neighbour(self.index, next_hop)? {
                return Ok(mac);
            }
            if !asked {
                asked = true;
                self.questions.ask_to_resolve(self.index, source, next_hop);
                continue;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let interface = self.name.clone();
                return Err(RouteError::NoNeighbour { next_hop, interface });
            }
            self.news.wait(left.min(Duration::from_millis(200)))?;
        }
    }
}

fn gateway_of(route: &RouteMessage) -> Option<IpAddr> {
    route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Gateway(RouteAddress::Inet(ip)) => Some(IpAddr::V4(*ip)),
        RouteAttribute::Gateway(RouteAddress::Inet6(ip)) => Some(IpAddr::V6(*ip)),
        _ => None,
    })
}

fn family_of(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

/// Tells when links, addresses or neighbours change; no content, only the fact.
#[derive(Debug)]
pub(crate) struct AddressNews(Netlink);

impl AddressNews {
    /// Listens from now on.
    pub(crate) fn listen() -> Result<Self, RouteError> {
        let netlink = Netlink::open(GROUPS_OF_NEWS)?;
        netlink.socket.set_non_blocking(true).map_err(RouteError::Netlink)?;
        Ok(Self(netlink))
    }

    /// Whether anything was told since the last call; forgets it.
    pub(crate) fn take(&self) -> bool {
        let mut any = false;
        let mut buffer = Vec::with_capacity(8192);
        // Bounded: a flood of news is one piece of news.
        for _ in 0..64 {
            buffer.clear();
            match self.0.socket.recv(&mut buffer, 0) {
                Ok(_) => any = true,
                // The kernel dropped some: then something did change.
                Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => any = true,
                Err(_) => break,
            }
        }
        any
    }
}

impl AsFd for AddressNews {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.socket.as_fd()
    }
}

/// One conversation with the kernel.
#[derive(Debug)]
struct Netlink {
    socket: Socket,
}

impl Netlink {
    fn open(groups: u32) -> Result<Self, RouteError> {
        let open = || {
            let mut socket = Socket::new(NETLINK_ROUTE)?;
            socket.bind(&netlink_sys::SocketAddr::new(0, groups))?;
            socket.connect(&netlink_sys::SocketAddr::new(0, 0))?;
            Ok(socket)
        };
        open().map(|socket| Self { socket }).map_err(RouteError::Netlink)
    }

    /// Waits for news, at most `limit`, and throws them away: the state is asked anew.
    fn wait(&self, limit: Duration) -> Result<(), RouteError> {
        let timeout = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
        let mut fds = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
        if nix::poll::poll(&mut fds, timeout).is_ok_and(|ready| ready > 0) {
            // News overflowing, too, are news.
            let _news = self.socket.recv_from_full();
        }
        Ok(())
    }

    /// Sends one question and returns its one answer; `None` when the kernel says no.
    fn ask(
        &mut self,
        question: RouteNetlinkMessage,
    ) -> Result<Option<RouteNetlinkMessage>, RouteError> {
        Ok(match self.say(question, 0)? {
            NetlinkPayload::InnerMessage(inner) => Some(inner),
            _ => None,
        })
    }

    /// Sends one message and returns what the kernel says to it.
    fn say(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> Result<NetlinkPayload<RouteNetlinkMessage>, RouteError> {
        assert_engine_unlocked();
        let mut message = NetlinkMessage::from(message);
        message.header.flags = NLM_F_REQUEST | flags;
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send(&bytes, 0).map_err(RouteError::Netlink)?;
        let (bytes, _) = self.socket.recv_from_full().map_err(RouteError::Netlink)?;
        NetlinkMessage::<RouteNetlinkMessage>::deserialize(&bytes)
            .map(|answer| answer.payload)
            .map_err(|error| RouteError::Netlink(io::Error::other(error)))
    }

    fn route(
        &mut self,
        interface: Option<u32>,
        destination: IpAddr,
    ) -> Result<Option<RouteMessage>, RouteError> {
        let mut question = RouteMessage::default();
        question.header.address_family = family_of(destination);
        question.header.destination_prefix_length = if destination.is_ipv4() { 32 } else { 128 };
        question.header.flags = RouteFlags::empty();
        question.attributes.push(RouteAttribute::Destination(destination.into()));
        question.attributes.extend(interface.map(RouteAttribute::Oif));
        Ok(match self.ask(RouteNetlinkMessage::GetRoute(question))? {
            Some(RouteNetlinkMessage::NewRoute(route)) => Some(route),
            _ => None,
        })
    }

    /// The neighbour's MAC address where the kernel holds one that it would use itself.
    fn neighbour(&mut self, index: u32, address: IpAddr) -> Result<Option<MacAddr>, RouteError> {
        let question = neighbour_message(index, address, NeighbourState::None);
        let answer = self.ask(RouteNetlinkMessage::GetNeighbour(question))?;
        let Some(RouteNetlinkMessage::NewNeighbour(entry)) = answer else { return Ok(None) };
        if matches!(entry.header.state, NeighbourState::Incomplete | NeighbourState::Failed) {
            return Ok(None);
        }
        Ok(entry.attributes.iter().find_map(|attribute| match attribute {
            NeighbourAttribute::LinkLayerAddress(bytes) => {
                bytes.as_slice().try_into().ok().map(MacAddr)
            }
            _ => None,
        }))
    }

    /// Makes the kernel resolve, in the way that the caller's rights allow. Whether it
    /// worked is seen in the neighbour table.
    fn ask_to_resolve(&mut self, index: u32, source: IpAddr, address: IpAddr) {
        let mut message = neighbour_message(index, address, NeighbourState::None);
        message.header.flags = NeighbourFlags::Use;
        let message = RouteNetlinkMessage::NewNeighbour(message);
        if let Ok(NetlinkPayload::Error(answer)) = self.say(message, NLM_F_CREATE | NLM_F_ACK)
            && answer.code.is_none()
        {
            return;
        }
        // Without CAP_NET_ADMIN: any datagram makes the kernel look for its receiver. Never
        // to RoCE's own port: rdma_rxe follows a stray pointer when a datagram there is too
        // short for a BTH, and takes its host down.
        if let Ok(socket) = UdpSocket::bind(SocketAddr::new(source, 0)) {
            let _sent = socket.send_to(&[], SocketAddr::new(address, DISCARD_PORT));
        }
    }
}

/// The UDP port whose service throws away what it gets.
const DISCARD_PORT: u16 = 9;

fn neighbour_message(index: u32, address: IpAddr, state: NeighbourState) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = family_of(address);
    message.header.ifindex = index;
    message.header.state = state;
    message.attributes.push(NeighbourAttribute::Destination(match address {
        IpAddr::V4(ip) => NeighbourAddress::Inet(ip),
        IpAddr::V6(ip) => NeighbourAddress::Inet6(ip),
    }));
    message
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn the_loopback_address_is_this_host() {
        let localhost = Ipv4Addr::LOCALHOST.into();
        let hop = Surroundings::open("lo", 1).unwrap().next_hop(localhost, localhost);
        assert_eq!(hop.unwrap(), NextHop::ThisHost);
    }
}
