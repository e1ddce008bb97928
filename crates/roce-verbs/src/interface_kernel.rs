//! Queries to the kernel about one interface, through netlink.

use std::io;
use std::net::IpAddr;

use roce_engine::{Flow, InterfaceRoute, Kernel, Neighbour, Solicitation};

use crate::netlink::{Link, Netlink, Route, send_discarded};

/// Queries the kernel about one interface.
#[derive(Debug)]
pub(crate) struct InterfaceKernel {
    netlink: Netlink,
    index: u32,
    name: String,
    /// VRF of the interface at the last query.
    vrf: Option<u32>,
    /// The link is up, and has been for a while: see [`settle`](Self::settle).
    is_settled: bool,
}

impl InterfaceKernel {
    /// Opens a netlink socket in this thread's network namespace.
    pub(crate) fn open(index: u32, name: &str) -> io::Result<Self> {
        Ok(Self {
            netlink: Netlink::open()?,
            index,
            name: name.to_owned(),
            vrf: None,
            is_settled: true,
        })
    }

    /// Returns the present state of the interface, `None` if it is gone.
    pub(crate) fn link(&mut self) -> io::Result<Option<Link>> {
        let link = self.netlink.link(self.index)?;
        self.vrf = link.and_then(|link| link.vrf);
        self.is_settled &= link.is_some_and(|link| link.is_running);
        Ok(link)
    }

    /// Returns false if the link was seen down, and [`settle`](Self::settle) has not been called since.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_settled
    }

    /// Lets next hops be solicited over a link that was down: both ends are up by now. A solicitation that comes before
    /// the other end sees the link has no reply, and the kernel repeats it a second later.
    pub(crate) fn settle(&mut self) {
        self.is_settled = true;
    }

    /// Returns the interface's addresses.
    pub(crate) fn addresses(&mut self) -> io::Result<Vec<IpAddr>> {
        self.netlink.addresses(self.index)
    }
}

impl Kernel for InterfaceKernel {
    fn route(&mut self, flow: &Flow) -> io::Result<Option<InterfaceRoute>> {
        let is_link_local = match flow.destination {
            IpAddr::V6(v6) => v6.is_unicast_link_local(),
            IpAddr::V4(v4) => v4.is_link_local(),
        };
        // A link-local address needs an interface. For other addresses the first query names none:
        // with an interface the kernel takes every IPv4 address for a neighbour's.
        let first = if is_link_local { Some(self.index) } else { self.vrf };
        let mut route = self.netlink.route(first, flow)?;
        let is_elsewhere = |route: &Option<Route>| matches!(route, Some(Route::NextHop { interface, .. }) if *interface != self.index);
        if is_elsewhere(&route) {
            // Another interface has the better route, as with two on one network.
            route = self.netlink.route(Some(self.index), flow)?;
        }
        Ok(match route {
            Some(Route::ThisHost) => Some(InterfaceRoute::ThisHost),
            Some(Route::NextHop { interface, address }) if interface == self.index => {
                Some(InterfaceRoute::Via(address))
            }
            _ => None,
        })
    }

    fn neighbour(&mut self, address: IpAddr) -> io::Result<Neighbour> {
        self.netlink.neighbour(self.index, address)
    }

    fn solicit(&mut self, flow: &Flow, next_hop: IpAddr) -> Solicitation {
        // If the kernel does not tell, a solicitation does no harm.
        let link = self.netlink.link(self.index);
        self.is_settled &= matches!(link, Err(_) | Ok(Some(Link { is_running: true, .. })));
        if !self.is_settled {
            return Solicitation::LinkDown;
        }
        if self.netlink.use_neighbour(self.index, next_hop).unwrap_or(false) {
            return Solicitation::Begun;
        }
        if let Err(error) = send_discarded(self.index, &self.name, flow) {
            tracing::debug!(%error, %next_hop, "the next hop cannot be solicited");
        }
        Solicitation::Asked
    }
}
