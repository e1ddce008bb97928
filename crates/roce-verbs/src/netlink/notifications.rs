//! The kernel's notifications of changes of links, addresses, neighbours, routes and rules.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage};
use netlink_sys::{Socket, protocols::NETLINK_ROUTE};
use roce_io::process::Own;

use super::{MAX_DATAGRAM, messages, parse};

/// A netlink socket that receives the kernel's notifications.
#[derive(Debug)]
pub(crate) struct NotificationSocket(Own<Socket>);

/// The objects around one interface that changed. Their new state is queried from the kernel, so a
/// late or lost notification leaves no wrong state.
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
    /// Returns the changes for the case that everything may have changed.
    pub(crate) fn all() -> Self {
        Self { link: true, addresses: true, routes: true, neighbours: BTreeSet::new() }
    }

    /// Returns true if the interface, its addresses or the routes changed.
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
/// Next hop objects (`ip nexthop`), which kernels before 5.3 do not have.
const GROUP_NEXTHOP: u32 = 32;
/// Most datagrams of one read: a flood of notifications must not occupy the reader for ever.
const MAX_DATAGRAMS: usize = 4096;
/// Offset of the interface's number in a notification about a link, an address or a neighbour:
/// behind the netlink header of 16 bytes and 4 more.
const INTERFACE_AT: usize = 20;

impl NotificationSocket {
    /// Subscribes to the notifications of this thread's network namespace.
    pub(crate) fn open() -> io::Result<Self> {
        let mut socket = Own::make(|| Socket::new(NETLINK_ROUTE))?;
        socket.bind_auto()?;
        for group in GROUPS {
            socket.add_membership(group)?;
        }
        let _unknown = socket.add_membership(GROUP_NEXTHOP);
        socket.set_non_blocking(true)?;
        Ok(Self(socket))
    }

    /// Returns true unless the program has closed it.
    pub(crate) fn is_open(&self) -> bool {
        self.0.is_open()
    }

    /// Returns the changes around an interface since the last call.
    pub(crate) fn read(&self, interface: u32) -> Changes {
        let mut changes = Changes::default();
        let mut buffer = Vec::with_capacity(MAX_DATAGRAM);
        for _ in 0..MAX_DATAGRAMS {
            buffer.clear();
            match self.0.recv(&mut buffer, 0) {
                Ok(_) => {
                    messages(&buffer).for_each(|message| note(&mut changes, interface, &message))
                }
                // The kernel dropped notifications.
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
