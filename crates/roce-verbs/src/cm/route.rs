//! The path of an identifier.

use roce_wire::{Gid, PathMtu};

/// The path of an identifier to its peer; as `rdma_route`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The interface of the device.
    pub interface: String,
    /// Row of the own GID table.
    pub gid_index: u8,
    /// The own address.
    pub local: Gid,
    /// The address of the peer, if there is one.
    pub remote: Option<Gid>,
    /// Path MTU of connections; `None` if the interface's MTU is too small for any.
    pub path_mtu: Option<PathMtu>,
    /// Traffic class.
    pub traffic_class: u8,
    /// The route was resolved, or is that of a request.
    pub has_path: bool,
}
