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
    /// Makes the kernel resolve or verify the next hop of a flow. Returns true if it is known to have
    /// begun.
    fn solicit(&mut self, flow: &Flow, next_hop: IpAddr) -> bool;
}
