//! The port to the kernel's routes and neighbours.

use std::io;
use std::net::IpAddr;

use crate::route::{Flow, InterfaceRoute, Neighbour};

/// The kernel's tables around one interface.
pub trait Kernel {
    /// Returns the route for a flow, `None` where there is none over the interface.
    fn route(&mut self, flow: &Flow) -> io::Result<Option<InterfaceRoute>>;
    /// Returns the entry for a neighbour.
    fn neighbour(&mut self, address: IpAddr) -> io::Result<Neighbour>;
    /// Makes the kernel resolve or verify the next hop of a flow.
    ///
    /// What is asked while the link is down is lost, and the kernel asks again only a second later, whatever the link
    /// does meanwhile: so nothing is asked then.
    fn solicit(&mut self, flow: &Flow, next_hop: IpAddr) -> Solicitation;
}

/// What became of a wish to have a next hop resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Solicitation {
    /// The kernel has begun.
    Begun,
    /// The kernel may begin; it has not said so.
    Asked,
    /// The link is down. The change of the link is an occasion to ask again.
    LinkDown,
}
