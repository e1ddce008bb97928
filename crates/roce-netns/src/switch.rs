//! A switch: a bridge in a namespace of its own.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::{Host, Link, NetnsError, netlink, virtual_network};

/// A bridge that joins any number of hosts and virtual machines.
///
/// It lives in a namespace of its own ([`Switch::host`]), where programs may listen to
/// everything that passes, on the interface `br0`. Keep it as long as the network is needed:
/// when the last clone goes, so do the cables plugged in.
///
/// ```no_run
/// # use roce_netns::{VirtualNetwork, Link};
/// let network = VirtualNetwork::new()?;
/// let hosts = [network.host("a")?, network.host("b")?, network.host("c")?];
/// let switch = network.bridge(&hosts.each_ref().map(|host| (host, "eth0")), Link::default())?;
/// switch.tap("guest0")?; // and a virtual machine
/// # Ok::<(), roce_netns::NetnsError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Switch {
    host: Host,
    link: Link,
    ports: Arc<AtomicU32>,
}

impl Switch {
    pub(crate) fn new(name: &str, link: Link) -> Result<Self, NetnsError> {
        let host = Host::new(name)?;
        host.run(pass_by_the_firewall);
        host.run(|| netlink::add_bridge(BRIDGE, link.mtu)).map_err(|source| {
            NetnsError::Refused { doing: format!("make a bridge in {host}"), source }
        })?;
        Ok(Self { host, link, ports: Arc::default() })
    }

    /// Lays a cable from this switch to a host: an interface there that is up.
    ///
    /// # Errors
    /// [`NetnsError::Refused`] when the host has an interface of that name already.
    pub fn connect(&self, host: &Host, ifname: &str) -> Result<(), NetnsError> {
        let port = format!("port{}", self.ports.fetch_add(1, Ordering::Relaxed));
        virtual_network::lay_cable((&self.host, &port), (host, ifname), self.link)?;
        self.plug_in(&port)
    }

    /// Plugs in a tap device for a virtual machine, which is to run in [`Switch::host`].
    ///
    /// # Errors
    /// As [`VirtualNetwork::tap`](crate::VirtualNetwork::tap).
    pub fn tap(&self, ifname: &str) -> Result<(), NetnsError> {
        virtual_network::add_tap(&self.host, ifname, self.link)?;
        self.plug_in(ifname)
    }

    /// The namespace that the bridge lives in.
    pub fn host(&self) -> &Host {
        &self.host
    }

    fn plug_in(&self, port: &str) -> Result<(), NetnsError> {
        self.host.run(|| netlink::enslave(port, BRIDGE)).map_err(|source| NetnsError::Refused {
            doing: format!("plug {port} into {}", self.host),
            source,
        })
    }
}

/// A switch forwards frames and nothing else. Where the kernel's `br_netfilter` is loaded (container
/// engines do that) a new namespace's bridges show each frame to iptables, which takes 6 % of a sum
/// of one float. Where it is not there is nothing to turn off, and where /proc/sys is read-only it
/// stays as it is.
fn pass_by_the_firewall() {
    for table in ["arptables", "iptables", "ip6tables"] {
        let _ = fs::write(format!("/proc/sys/net/bridge/bridge-nf-call-{table}"), "0");
    }
}

const BRIDGE: &str = "br0";
