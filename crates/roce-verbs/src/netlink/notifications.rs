//! What the kernel tells unasked: that links, addresses, neighbours, routes or rules changed.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage};
use netlink_sys::{Socket, protocols::NETLINK_ROUTE};

use super::{MAX_DATAGRAM, messages, parse};

/// A netlink socket that listens to the kernel's notifications.
#[derive(Debug)]
pub(crate) struct NotificationSocket(Socket);

/// What changed around one interface. It names the things, not their new state: the kernel is
/// asked for that, so a notification that is late or lost leaves nothing wrong behind.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// The interface itself.
    pub(crate) link: bool,
    /// Its addresses.
    pub(crate) addresses: bool,
    /// Routes or rules of the namespace.
    pub(crate) routes: bool,
    /// Neighbours on the interface's link.
    pub(crate) neighbours: BTreeSet<IpAddr>,
}

impl Changes {
    /// Everything may have changed.
    pub(crate) fn all() -> Self {
        Self { link: true, addresses: true, routes: true, neighbours: BTreeSet::new() }
    }

    /// Returns whether the interface, its addresses or routes are to be asked about.
    pub(crate) fn any(&self) -> bool {
        self.link || self.addresses || self.routes
    }

    pub(crate) fn merge(&mut self, later: Self) {
        self.link |= later.link;
        self.addresses |= later.addresses;
        self.routes |= later.routes;
        self.neighbours.extend(later.neighbours);
    }
}

/// The groups of notifications by their numbers in `rtnetlink.h`: links, neighbours, IPv4
/// addresses, routes and rules, IPv6 addresses, routes and rules.
const GROUPS: [u32; 8] = [1, 3, 5, 7, 8, 9, 11, 19];
/// Next hop objects (`ip nexthop`), which a kernel before 5.3 has not got.
const GROUP_NEXTHOP: u32 = 32;
/// Notifications that are read at once: a flood of them must not keep the reader for ever.
const MAX_DATAGRAMS: usize = 4096;
/// Where the interface's number is in a notification about a link, an address or a neighbour:
/// behind the netlink header of 16 bytes, and 4 bytes of each one's own.
const INTERFACE_AT: usize = 20;

impl NotificationSocket {
    /// Listens from now on, in this thread's network namespace.
    pub(crate) fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        for group in GROUPS {
            socket.add_membership(group)?;
        }
        let _unknown = socket.add_membership(GROUP_NEXTHOP);
        socket.set_non_blocking(true)?;
        Ok(Self(socket))
    }

    /// Returns what the kernel has told since the last call, as far as it concerns an interface.
    pub(crate) fn read(&self, interface: u32) -> Changes {
        let mut changes = Changes::default();
        let mut buffer = Vec::with_capacity(MAX_DATAGRAM);
        for _ in 0..MAX_DATAGRAMS {
            buffer.clear();
            match self.0.recv(&mut buffer, 0) {
                Ok(_) => {
                    messages(&buffer).for_each(|message| note(&mut changes, interface, &message))
                }
                // The kernel dropped some.
                Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => {
                    changes = Changes::all();
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        changes
    }
}

fn note(changes: &mut Changes, interface: u32, message: &super::NetlinkBuffer<&[u8]>) {
    let bytes = message.clone().into_inner();
    let number = bytes.get(INTERFACE_AT..).and_then(super::u32_at);
    let is_ours = number == Some(interface);
    match message.message_type() {
        libc::RTM_NEWLINK | libc::RTM_DELLINK => changes.link |= is_ours,
        libc::RTM_NEWADDR | libc::RTM_DELADDR => changes.addresses |= is_ours,
        libc::RTM_NEWNEIGH | libc::RTM_DELNEIGH if is_ours => match parse(message) {
            Some(
                RouteNetlinkMessage::NewNeighbour(entry) | RouteNetlinkMessage::DelNeighbour(entry),
            ) => changes.neighbours.extend(address_of(&entry)),
            _ => changes.routes = true,
        },
        libc::RTM_NEWNEIGH | libc::RTM_DELNEIGH => {}
        // A route, a rule, or a next hop.
        _ => changes.routes = true,
    }
}

fn address_of(entry: &NeighbourMessage) -> Option<IpAddr> {
    entry.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::Destination(NeighbourAddress::Inet(ip)) => Some(IpAddr::V4(*ip)),
        NeighbourAttribute::Destination(NeighbourAddress::Inet6(ip)) => Some(IpAddr::V6(*ip)),
        _ => None,
    })
}

impl AsFd for NotificationSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
