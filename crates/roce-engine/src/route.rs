//! The words of route resolution: flows, neighbours, and why there is no path.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use roce_wire::MacAddr;

/// An error of the resolution of a path.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RouteError {
    /// A netlink query failed.
    #[error("the kernel refused a netlink query ({0}); check that this sandbox allows netlink")]
    Netlink(#[source] Arc<io::Error>),
    /// No route to the address.
    #[error(
        "no route to {destination} over {interface}: add an address or a route (`ip route get {destination}` shows what the kernel would do)"
    )]
    NoRoute {
        /// Address of the peer.
        destination: IpAddr,
        /// The interface's name.
        interface: String,
    },
    /// The next hop did not answer the kernel's ARP or neighbour solicitation.
    #[error(
        "{next_hop} does not reply on {interface} (ARP or neighbour discovery failed); check that the peer is up and on this network"
    )]
    NoNeighbour {
        /// Address of the next hop.
        next_hop: IpAddr,
        /// The interface's name.
        interface: String,
    },
}

impl RouteError {
    /// Returns the error of a query that the kernel refused.
    pub fn from_kernel(error: io::Error) -> Self {
        Self::Netlink(Arc::new(error))
    }
}

/// The addresses and the traffic class by which the kernel chooses a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flow {
    /// The own address.
    pub source: IpAddr,
    /// The address of the peer.
    pub destination: IpAddr,
    /// Type of service or traffic class: rules may look at its DSCP.
    pub traffic_class: u8,
}

/// The kernel's entry for a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Neighbour {
    /// There is no entry, or an unused one.
    Unknown,
    /// The kernel is resolving it now.
    Incomplete,
    /// It did not reply to the kernel.
    Failed,
    /// Frames may be sent to it.
    Valid {
        /// Its MAC address.
        mac: MacAddr,
        /// The kernel would verify it at its next use.
        is_stale: bool,
    },
}

/// How packets of a flow leave this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextHop {
    /// The destination is this host: the packets never reach a wire.
    ThisHost,
    /// Over the interface, to the neighbour with this MAC address.
    Neighbour(MacAddr),
    /// To the members of a multicast group, at this MAC address: over the interface, and to the processes
    /// of this host.
    Group(MacAddr),
}

/// The kernel's route for a flow over the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterfaceRoute {
    /// The destination is this host.
    ThisHost,
    /// To a neighbour on the interface's link.
    Via(IpAddr),
}

/// The outcome of a resolution.
pub type Outcome = Result<NextHop, RouteError>;
