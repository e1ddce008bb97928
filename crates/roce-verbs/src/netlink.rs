//! Queries to the kernel about routes, neighbours and interfaces, through rtnetlink.
//!
//! The kernel does ARP and neighbour discovery for the device. So gateways, policy rules and static
//! entries apply to RDMA as they apply to UDP.

pub(crate) mod notifications;

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::os::fd::AsFd;
use std::time::Duration;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_MULTIPART, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR,
    NetlinkBuffer, NetlinkMessage, NetlinkPayload, NlasIterator,
};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{LinkFlags, LinkMessage};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteType, RouteVia,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, protocols::NETLINK_ROUTE};
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::socket::{setsockopt, sockopt};
use roce_engine::{Flow, Neighbour};
use roce_io::process::Own;
use roce_io::sockets;
use roce_wire::{MacAddr, ROCE_V2_PORT};

use crate::engine_lock::assert_not_held as assert_engine_unlocked;

/// The kernel's route for a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// The destination is an address of this host.
    ThisHost,
    /// To a neighbour on an interface's link: a gateway, or the destination itself.
    NextHop {
        /// The interface's number.
        interface: u32,
        /// The neighbour's address; its family may differ from the destination's.
        address: IpAddr,
    },
}

/// The present state of an interface, without its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) mac: MacAddr,
    pub(crate) mtu: u32,
    /// Up and with a carrier.
    pub(crate) is_running: bool,
    /// The number of the VRF that it belongs to.
    pub(crate) vrf: Option<u32>,
}

/// A netlink socket for queries.
///
/// It belongs to the network namespace of the thread that opened it.
#[derive(Debug)]
pub(crate) struct Netlink {
    socket: Own<Socket>,
    sequence: u32,
}

/// Longest wait for a reply, which the kernel sends while it receives the query.
const MAX_REPLY_TIME: Duration = Duration::from_secs(1);
/// Bytes of the longest datagram that the kernel sends.
const MAX_DATAGRAM: usize = 32 << 10;
/// The UDP port of the discard service.
const DISCARD_PORT: u16 = 9;
/// The number of UDP among the protocols over IP.
const IP_PROTOCOL_UDP: u8 = 17;
/// The upper six bits of a traffic class.
const DSCP_MASK: u8 = 0xfc;

impl Netlink {
    pub(crate) fn open() -> io::Result<Self> {
        // Unlike those of `roce_io::sockets` it may come from another library's `socket`: none takes netlink.
        let mut socket = Own::make(|| Socket::new(NETLINK_ROUTE))?;
        socket.bind_auto()?;
        socket.connect(&netlink_sys::SocketAddr::new(0, 0))?;
        // Without it (before Linux 4.20) the reply to a query for one interface's addresses has
        // those of all; they are filtered below.
        let _refused = socket.set_netlink_get_strict_chk(true);
        Ok(Self { socket, sequence: 0 })
    }

    /// Returns the route that a UDP socket bound to the flow's source has, `None` where the
    /// kernel refuses. With `interface`, that of a socket bound to the interface, too.
    pub(crate) fn route(
        &mut self,
        interface: Option<u32>,
        flow: &Flow,
    ) -> io::Result<Option<Route>> {
        let mut query = RouteMessage::default();
        let header = &mut query.header;
        let prefix_length = if flow.destination.is_ipv4() { 32 } else { 128 };
        header.address_family = family_of(flow.destination);
        header.destination_prefix_length = prefix_length;
        header.source_prefix_length = prefix_length;
        header.tos = flow.traffic_class & DSCP_MASK;
        header.flags = RouteFlags::empty();
        query.attributes = vec![
            RouteAttribute::Destination(flow.destination.into()),
            RouteAttribute::Source(flow.source.into()),
            RouteAttribute::IpProto(IP_PROTOCOL_UDP),
            RouteAttribute::Dport(ROCE_V2_PORT),
        ];
        query.attributes.extend(interface.map(RouteAttribute::Oif));
        Ok(match self.request_one(RouteNetlinkMessage::GetRoute(query))? {
            Some(RouteNetlinkMessage::NewRoute(route)) => route_of(&route, flow.destination),
            _ => None,
        })
    }

    /// Returns the interface over which an address is reached from any source, and the address that the
    /// kernel prefers there. `None` where there is no route.
    pub(crate) fn interface_to(
        &mut self,
        interface: Option<u32>,
        destination: IpAddr,
    ) -> io::Result<Option<(u32, Option<IpAddr>)>> {
        let mut query = RouteMessage::default();
        query.header.address_family = family_of(destination);
        query.header.destination_prefix_length = if destination.is_ipv4() { 32 } else { 128 };
        query.attributes = vec![RouteAttribute::Destination(destination.into())];
        query.attributes.extend(interface.map(RouteAttribute::Oif));
        Ok(match self.request_one(RouteNetlinkMessage::GetRoute(query))? {
            Some(RouteNetlinkMessage::NewRoute(route)) => interface_of(&route),
            _ => None,
        })
    }

    /// Returns the entry for an address on an interface's link.
    pub(crate) fn neighbour(&mut self, interface: u32, address: IpAddr) -> io::Result<Neighbour> {
        let query = neighbour_message(interface, address);
        Ok(match self.request_one(RouteNetlinkMessage::GetNeighbour(query))? {
            Some(RouteNetlinkMessage::NewNeighbour(entry)) => neighbour_of(&entry),
            _ => Neighbour::Unknown,
        })
    }

    /// Uses a neighbour's entry as a datagram to it would: the kernel resolves the neighbour, or
    /// verifies it if it is stale. Needs CAP_NET_ADMIN; returns true if the kernel accepted.
    pub(crate) fn use_neighbour(&mut self, interface: u32, address: IpAddr) -> io::Result<bool> {
        let mut message = neighbour_message(interface, address);
        message.header.flags = NeighbourFlags::Use;
        let message = RouteNetlinkMessage::NewNeighbour(message);
        self.request(message, NLM_F_CREATE | NLM_F_ACK, &mut |_| {}).map(|refusal| refusal.is_ok())
    }

    /// Returns the interface of this number, `None` if there is none.
    pub(crate) fn link(&mut self, interface: u32) -> io::Result<Option<Link>> {
        let mut query = LinkMessage::default();
        query.header.index = interface;
        let mut found = None;
        let refusal = self.request(RouteNetlinkMessage::GetLink(query), 0, &mut |message| {
            found = link_of(message.payload());
        })?;
        match refusal {
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
            Err(error) => Err(error),
            Ok(()) => {
                found.map(Some).ok_or_else(|| io::Error::other("a link message is too short"))
            }
        }
    }

    /// Returns the addresses of an interface in the kernel's order, IPv4 first.
    pub(crate) fn addresses(&mut self, interface: u32) -> io::Result<Vec<IpAddr>> {
        let mut all = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut query = AddressMessage::default();
            query.header.family = family;
            query.header.index = interface;
            let query = RouteNetlinkMessage::GetAddress(query);
            let refusal = self.request(query, NLM_F_DUMP, &mut |message| {
                if let Some(RouteNetlinkMessage::NewAddress(entry)) = parse(message)
                    && entry.header.index == interface
                {
                    all.extend(address_of(&entry));
                }
            })?;
            match refusal {
                // The host does not support this family.
                Err(error) if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => {}
                // The interface was removed meanwhile.
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {}
                other => other?,
            }
        }
        Ok(all)
    }

    /// Sends a query and returns its one reply, `None` if the kernel refuses.
    fn request_one(
        &mut self,
        query: RouteNetlinkMessage,
    ) -> io::Result<Option<RouteNetlinkMessage>> {
        let mut reply = None;
        let refusal = self.request(query, 0, &mut |message| reply = parse(message))?;
        Ok(reply.filter(|_| refusal.is_ok()))
    }

    /// Sends a request and calls `each` with every message of the reply. The inner result is the
    /// kernel's verdict.
    fn request(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
        each: &mut dyn FnMut(&NetlinkBuffer<&[u8]>),
    ) -> io::Result<io::Result<()>> {
        assert_engine_unlocked();
        self.sequence = self.sequence.wrapping_add(1);
        let mut message = NetlinkMessage::from(message);
        message.header.flags = NLM_F_REQUEST | flags;
        message.header.sequence_number = self.sequence;
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        let mut buffer = Vec::with_capacity(MAX_DATAGRAM);
        loop {
            self.wait_for_reply()?;
            buffer.clear();
            self.socket.recv(&mut buffer, 0)?;
            for message in messages(&buffer) {
                if message.sequence_number() != self.sequence {
                    // The reply to a query that timed out.
                    continue;
                }
                match message.message_type() {
                    NLMSG_ERROR => return Ok(verdict_of(message.payload())),
                    NLMSG_DONE => return Ok(Ok(())),
                    _ => each(&message),
                }
                if message.flags() & NLM_F_MULTIPART == 0 {
                    return Ok(Ok(()));
                }
            }
        }
    }

    fn wait_for_reply(&self) -> io::Result<()> {
        let timeout = PollTimeout::try_from(MAX_REPLY_TIME).unwrap_or(PollTimeout::MAX);
        loop {
            let mut fds = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
            match nix::poll::poll(&mut fds, timeout) {
                Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
                Ok(_) => return Ok(()),
                Err(nix::errno::Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

/// Sends an empty datagram along a flow, so that the kernel resolves the flow's next hop. Programs
/// without CAP_NET_ADMIN use it in place of [`Netlink::use_neighbour`].
///
/// It goes to the discard port and never to RoCE's own: rdma_rxe follows a stray pointer when a
/// datagram there is too short for a BTH, and takes its host down.
pub(crate) fn send_discarded(interface: u32, name: &str, flow: &Flow) -> io::Result<()> {
    assert_engine_unlocked();
    let scoped = |address: IpAddr, port| match address {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => {
            SocketAddr::V6(SocketAddrV6::new(v6, port, 0, interface))
        }
        other => SocketAddr::new(other, port),
    };
    let socket = sockets::bind_udp(scoped(flow.source, 0))?;
    // For the case that another interface has a better route; before Linux 5.7 it needs CAP_NET_RAW.
    let _refused = setsockopt(&socket, sockopt::BindToDevice, &name.into());
    socket.send_to(&[], scoped(flow.destination, DISCARD_PORT)).map(|_sent| ())
}

/// Returns the messages of a datagram, up to the first that is truncated.
fn messages(datagram: &[u8]) -> impl Iterator<Item = NetlinkBuffer<&[u8]>> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let message = NetlinkBuffer::new_checked(rest).ok()?;
        let len = message.length() as usize;
        let aligned = len.next_multiple_of(4).min(rest.len());
        rest = &rest[aligned..];
        Some(message)
    })
}

fn parse(message: &NetlinkBuffer<&[u8]>) -> Option<RouteNetlinkMessage> {
    let bytes = message.clone().into_inner();
    match NetlinkMessage::deserialize(bytes).ok()?.payload {
        NetlinkPayload::InnerMessage(inner) => Some(inner),
        _ => None,
    }
}

/// Returns the verdict of an error message: 0, or the negative number of an error.
fn verdict_of(payload: &[u8]) -> io::Result<()> {
    match payload.first_chunk().map(|code| i32::from_ne_bytes(*code)) {
        Some(0) => Ok(()),
        Some(code) => Err(io::Error::from_raw_os_error(code.saturating_abs())),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

fn route_of(route: &RouteMessage, destination: IpAddr) -> Option<Route> {
    match route.header.kind {
        RouteType::Local => return Some(Route::ThisHost),
        RouteType::Unicast | RouteType::Anycast => {}
        _ => return None,
    }
    let interface = route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Oif(interface) => Some(*interface),
        _ => None,
    })?;
    let gateway = route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Gateway(RouteAddress::Inet(ip)) => Some(IpAddr::V4(*ip)),
        RouteAttribute::Gateway(RouteAddress::Inet6(ip)) => Some(IpAddr::V6(*ip)),
        RouteAttribute::Via(RouteVia::Inet(ip)) => Some(IpAddr::V4(*ip)),
        RouteAttribute::Via(RouteVia::Inet6(ip)) => Some(IpAddr::V6(*ip)),
        _ => None,
    });
    Some(Route::NextHop { interface, address: gateway.unwrap_or(destination) })
}

/// Returns the interface of a route, and the source address that the kernel prefers.
fn interface_of(route: &RouteMessage) -> Option<(u32, Option<IpAddr>)> {
    use RouteType::{Anycast, Local, Multicast, Unicast};
    if !matches!(route.header.kind, Unicast | Local | Anycast | Multicast) {
        return None;
    }
    let interface = route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Oif(interface) => Some(*interface),
        _ => None,
    })?;
    let source = route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::PrefSource(RouteAddress::Inet(ip)) => Some(IpAddr::V4(*ip)),
        RouteAttribute::PrefSource(RouteAddress::Inet6(ip)) => Some(IpAddr::V6(*ip)),
        _ => None,
    });
    Some((interface, source))
}

fn neighbour_of(entry: &NeighbourMessage) -> Neighbour {
    let is_stale = match entry.header.state {
        NeighbourState::None => return Neighbour::Unknown,
        NeighbourState::Incomplete => return Neighbour::Incomplete,
        NeighbourState::Failed => return Neighbour::Failed,
        state => state == NeighbourState::Stale,
    };
    let mac = entry.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::LinkLayerAddress(bytes) => bytes.as_slice().try_into().ok(),
        _ => None,
    });
    mac.map_or(Neighbour::Unknown, |mac| Neighbour::Valid { mac: MacAddr(mac), is_stale })
}

fn address_of(entry: &AddressMessage) -> Option<IpAddr> {
    // An interface with a peer address has its own address in `Local`.
    let local = entry.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Local(ip) => Some(*ip),
        _ => None,
    });
    local.or_else(|| {
        entry.attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Address(ip) => Some(*ip),
            _ => None,
        })
    })
}

/// Bytes of `ifinfomsg`, which precedes the attributes of a link.
const LINK_HEADER_LEN: usize = 16;
/// Offset of `ifi_flags` in it.
const LINK_FLAGS_AT: usize = 8;

/// Parses the attributes that are needed. The reply has some sixty, and an unknown kind must not make
/// the parser fail.
fn link_of(payload: &[u8]) -> Option<Link> {
    let (header, attributes) = payload.split_at_checked(LINK_HEADER_LEN)?;
    let flags = LinkFlags::from_bits_retain(u32_at(header.get(LINK_FLAGS_AT..)?)?);
    let (mut mac, mut mtu, mut master, mut is_vrf_port) = (MacAddr([0; 6]), 0, None, false);
    for attribute in NlasIterator::new(attributes).map_while(Result::ok) {
        match attribute.kind() {
            libc::IFLA_ADDRESS => {
                mac = attribute.value().try_into().map_or(mac, MacAddr);
            }
            libc::IFLA_MTU => mtu = u32_at(attribute.value())?,
            libc::IFLA_MASTER => master = u32_at(attribute.value()),
            libc::IFLA_LINKINFO => {
                is_vrf_port = NlasIterator::new(attribute.value())
                    .map_while(Result::ok)
                    .any(|info| info.kind() == IFLA_INFO_SLAVE_KIND && info.value() == b"vrf\0");
            }
            _ => {}
        }
    }
    let is_running = flags.contains(LinkFlags::Up | LinkFlags::Running);
    Some(Link { mac, mtu, is_running, vrf: master.filter(|_| is_vrf_port) })
}

/// The attribute inside `IFLA_LINKINFO` with the kind of the interface's master.
const IFLA_INFO_SLAVE_KIND: u16 = 4;

fn u32_at(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

fn family_of(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

fn neighbour_message(interface: u32, address: IpAddr) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = family_of(address);
    message.header.ifindex = interface;
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
        let localhost = IpAddr::from(Ipv4Addr::LOCALHOST);
        let flow = Flow { source: localhost, destination: localhost, traffic_class: 0 };
        let route = Netlink::open().unwrap().route(None, &flow);
        assert_eq!(route.unwrap(), Some(Route::ThisHost));
    }

    #[test]
    fn the_loopback_interface_is_found_by_its_number() {
        let mut kernel = Netlink::open().unwrap();
        let lo = kernel.link(1).unwrap().unwrap();
        assert!(lo.mac == MacAddr([0; 6]) && lo.mtu > 1500 && lo.vrf.is_none(), "{lo:?}");
        assert_eq!(kernel.addresses(1).unwrap().first(), Some(&Ipv4Addr::LOCALHOST.into()));
        assert_eq!(kernel.link(u32::from(u16::MAX)).unwrap(), None);
    }

    #[test]
    #[cfg(debug_assertions)]
    fn a_query_under_the_engines_lock_panics() {
        let asked = crate::engine_lock::while_held(|| {
            std::panic::catch_unwind(|| Netlink::open().unwrap().link(1).map(|_| ()))
        });
        assert!(asked.is_err());
    }
}
