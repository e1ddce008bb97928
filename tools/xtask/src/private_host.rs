//! A host on which what was installed in a Debian root runs.

use roce_netns::{Host, Link, VirtualNetwork};

use crate::Result;

/// A host with one interface that has a carrier and an address.
#[derive(Debug)]
pub(crate) struct PrivateHost {
    pub(crate) host: Host,
    /// Has the other end of the link.
    _peer: Host,
}

impl PrivateHost {
    /// Makes the host, and `eth0` on it.
    ///
    /// # Errors
    /// If the system refuses namespaces.
    pub(crate) fn new() -> Result<Self> {
        let network = VirtualNetwork::new()?;
        let (host, peer) = (network.host("installed")?, network.host("peer")?);
        network.veth((&host, "eth0"), (&peer, "eth0"), Link { mtu: 1500 })?;
        host.address("eth0", "10.9.0.1/24".parse()?)?;
        Ok(Self { host, _peer: peer })
    }
}
