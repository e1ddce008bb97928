//! A switch: a bridge in its own namespace.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::{Host, Link, NetnsError, link, netlink};

/// A bridge that connects any number of hosts and virtual machines.
///
/// It has its own namespace ([`Switch::host`]), where programs can capture all frames on the
/// interface `br0`. Keep it as long as the network is needed: the last clone removes its cables.
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
        host.run(bypass_firewall);
        host.run(|| netlink::add_bridge(BRIDGE, link.mtu)).map_err(|source| {
            NetnsError::Refused { doing: format!("create a bridge in {host}"), source }
        })?;
        Ok(Self { host, link, ports: Arc::default() })
    }

    /// Connects a host by an interface, which is set up.
    ///
    /// # Errors
    /// [`NetnsError::Refused`] if the host has an interface of that name already.
    pub fn connect(&self, host: &Host, ifname: &str) -> Result<(), NetnsError> {
        let number = self.ports.fetch_add(1, Ordering::Relaxed);
        let port = port_name(number);
        let near = (&self.host, port.as_str(), Some(port_index(number)));
        link::add_veth_pair(near, (host, ifname), self.link)?;
        self.plug_in(&port)
    }

    /// Adds a tap device for a virtual machine, which has to run in [`Switch::host`].
    ///
    /// # Errors
    /// As [`VirtualNetwork::tap`](crate::VirtualNetwork::tap).
    pub fn tap(&self, ifname: &str) -> Result<(), NetnsError> {
        link::add_tap(&self.host, ifname, self.link)?;
        self.plug_in(ifname)
    }

    /// Returns the namespace of the bridge.
    pub fn host(&self) -> &Host {
        &self.host
    }

    fn plug_in(&self, port: &str) -> Result<(), NetnsError> {
        self.host.run(|| netlink::enslave(port, BRIDGE)).map_err(|source| NetnsError::Refused {
            doing: format!("add {port} to {}", self.host),
            source,
        })
    }
}

/// Returns the name of a switch's port, counted from 0 in the order in which hosts are connected. Setting it
/// [down](Host::set_down) in the switch's [host](Switch::host) takes the carrier of the interface at its other end,
/// which keeps its addresses.
pub fn port_name(number: u32) -> String {
    format!("port{number}")
}

/// Returns the interface number of a port. The kernel reports the carrier of a veth at once only if the numbers of its
/// two ends differ, and else within a second; those of hosts are small.
pub(crate) fn port_index(number: u32) -> u32 {
    1000 + number
}

/// Excludes the bridge from iptables. If `br_netfilter` is loaded, as by container engines, the
/// bridges of a new namespace pass each frame to iptables, which takes 6 % of an allreduce of one
/// float. Errors are ignored: without the module there is no setting, and /proc/sys may be
/// read-only.
fn bypass_firewall() {
    for table in ["arptables", "iptables", "ip6tables"] {
        let _ = fs::write(format!("/proc/sys/net/bridge/bridge-nf-call-{table}"), "0");
    }
}

const BRIDGE: &str = "br0";
