//! Addresses of a datagram, and of the ends of a connection.

use std::net::{IpAddr, SocketAddr};

use roce_wire::management::CmaHeader;

/// Addresses of a datagram: of this host and of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DatagramAddresses {
    /// Our address.
    pub local: IpAddr,
    /// The peer's address.
    pub remote: IpAddr,
}

/// Addresses and ports of a connection, as rdma_cm has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionAddresses {
    /// Our address and port.
    pub local: SocketAddr,
    /// The peer's address and port.
    pub remote: SocketAddr,
}

impl ConnectionAddresses {
    pub(crate) fn datagram(&self) -> DatagramAddresses {
        DatagramAddresses { local: self.local.ip(), remote: self.remote.ip() }
    }

    /// Returns those that a request names, for the port `port` of this host.
    pub(crate) fn of_request(header: &CmaHeader, port: u16) -> Self {
        let local = SocketAddr::new(header.destination(), port);
        Self { local, remote: SocketAddr::new(header.source(), header.source_port) }
    }

    /// Returns the header of a request; `None` if one address is IPv4 and the other IPv6.
    pub(crate) fn header(&self) -> Option<CmaHeader> {
        CmaHeader::new(self.local.port(), self.local.ip(), self.remote.ip())
    }

    /// Returns the flow label of the connection's packets.
    //= rule cm-flow-label: cma.c: cma_get_roce_udp_flow_label
    //# The flow label of a connection is the lower 20 bits of 31 times the active port plus the
    //# passive port.
    pub(crate) fn flow_label(&self) -> u32 {
        let hash = 31 * u32::from(self.local.port()) + u32::from(self.remote.port());
        hash & 0xf_ffff
    }
}
