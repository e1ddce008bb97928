//! Creation and cabling of hosts.

use crate::link::{add_tap, add_veth_pair};
use crate::switch::{port_index, port_name};
use crate::{Host, Link, NetnsError, Switch};

/// Creates hosts and connects them.
///
/// It has no state: hosts and switches own their namespaces and interfaces.
///
/// ```no_run
/// use roce_netns::{VirtualNetwork, Link};
/// let network = VirtualNetwork::new()?;
/// let (a, b) = (network.host("a")?, network.host("b")?);
/// network.veth((&a, "eth0"), (&b, "eth0"), Link::default())?;
/// # Ok::<(), roce_netns::NetnsError>(())
/// ```
#[derive(Debug)]
pub struct VirtualNetwork(());

impl VirtualNetwork {
    /// Checks that this process may create namespaces.
    ///
    /// # Errors
    /// [`NetnsError::NotAllowed`]; the message says how to allow it.
    pub fn new() -> Result<Self, NetnsError> {
        Host::new("probe").map(|_| Self(()))
    }

    /// Creates a host with `lo` up. The name appears in messages only.
    ///
    /// # Errors
    /// [`NetnsError::NotAllowed`] if the system's limit on namespaces is reached.
    pub fn host(&self, name: &str) -> Result<Host, NetnsError> {
        Host::new(name)
    }

    /// Connects two hosts by a veth pair and sets both interfaces up.
    ///
    /// # Errors
    /// [`NetnsError::Refused`] if a host has an interface of that name already, or the
    /// MTU is out of range.
    pub fn veth(
        &self,
        (near, near_name): (&Host, &str),
        (far, far_name): (&Host, &str),
        link: Link,
    ) -> Result<(), NetnsError> {
        add_veth_pair((near, near_name, None), (far, far_name), link)
    }

    /// Connects a host by an interface to a numbered port of another one, such as that of a switch, and sets both
    /// up. Of the port's name see [`port_name`].
    ///
    /// # Errors
    /// As [`veth`](Self::veth).
    pub fn port(
        &self,
        (near, number): (&Host, u32),
        far: (&Host, &str),
        link: Link,
    ) -> Result<(), NetnsError> {
        add_veth_pair((near, &port_name(number), Some(port_index(number))), far, link)
    }

    /// Creates a switch without ports.
    ///
    /// # Errors
    /// [`NetnsError::NotAllowed`] as for [`host`](Self::host), [`NetnsError::Refused`] if the
    /// kernel has no bridges.
    pub fn switch(&self, name: &str, link: Link) -> Result<Switch, NetnsError> {
        Switch::new(name, link)
    }

    /// Creates a switch and connects each of `hosts`, by an interface of the given name.
    ///
    /// # Errors
    /// As [`switch`](Self::switch) and [`Switch::connect`].
    pub fn bridge(&self, hosts: &[(&Host, &str)], link: Link) -> Result<Switch, NetnsError> {
        let switch = self.switch("switch", link)?;
        hosts.iter().try_for_each(|(host, ifname)| switch.connect(host, ifname))?;
        Ok(switch)
    }

    /// Creates a tap device for a virtual machine in a host.
    ///
    /// It exists as long as the host. Start the machine with [`Host::spawn`] and, for qemu,
    /// `-netdev tap,id=n0,ifname=IFNAME,script=no,downscript=no`.
    ///
    /// # Errors
    /// [`NetnsError::Tap`] if the host has an interface of that name already, or
    /// `/dev/net/tun` is missing.
    pub fn tap(&self, host: &Host, ifname: &str, link: Link) -> Result<(), NetnsError> {
        add_tap(host, ifname, link)
    }
}
