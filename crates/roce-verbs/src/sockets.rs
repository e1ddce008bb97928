//! Sockets that need more than opening, and the network namespace that they are in.

pub(crate) mod growing_socket;
pub(crate) mod idle_sockets;
pub(crate) mod network_namespace;
