//! The place where hosts are made and cabled.

use tappers::linux::Tap;

use crate::{Host, NetnsError, Switch, netlink};

/// A private network under construction.
///
/// It holds nothing: hosts and switches own what they are made of.
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

/// What a cable carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Largest IP packet, in bytes: 68 ..= 65535. RoCE's largest path MTU needs 4176.
    pub mtu: u32,
}

impl VirtualNetwork {
    /// Makes sure that this process may make namespaces.
    ///
    /// # Errors
    /// [`NetnsError::NotAllowed`]; the text says how to get the right.
    pub fn new() -> Result<Self, NetnsError> {
        Host::new("probe").map(|_| Self(()))
    }

    /// Makes a host: a network namespace with `lo` up. The name appears in messages only.
    ///
    /// # Errors
    /// [`NetnsError::NotAllowed`] when the system's limit on namespaces is reached.
    pub fn host(&self, name: &str) -> Result<Host, NetnsError> {
        Host::new(name)
    }

    /// Lays a cable between two hosts: an interface in each, both up.
    ///
    /// # Errors
    /// [`NetnsError::Refused`] when a host has an interface of that name already, or the
    /// MTU is out of range.
    pub fn veth(
        &self,
        (near, near_name): (&Host, &str),
        (far, far_name): (&Host, &str),
        link: Link,
    ) -> Result<(), NetnsError> {
        lay_cable((near, near_name), (far, far_name), link)
    }

    /// Makes a switch with nothing plugged in.
    ///
    /// # Errors
    /// [`NetnsError::NotAllowed`] as for [`host`](Self::host), [`NetnsError::Refused`] when the
    /// kernel has no bridges.
    pub fn switch(&self, name: &str, link: Link) -> Result<Switch, NetnsError> {
        Switch::new(name, link)
    }

    /// Makes a switch and lays a cable from it to each of `hosts`, under the interface name
    /// given with it.
    ///
    /// # Errors
    /// As [`switch`](Self::switch) and [`Switch::connect`].
    pub fn bridge(&self, hosts: &[(&Host, &str)], link: Link) -> Result<Switch, NetnsError> {
        let switch = self.switch("switch", link)?;
        hosts.iter().try_for_each(|(host, ifname)| switch.connect(host, ifname))?;
        Ok(switch)
    }

    /// Makes a tap device in a host: a cable whose other end a virtual machine takes.
    ///
    /// It stays until the host goes. Start the machine with [`Host::spawn`] and, for qemu,
    /// `-netdev tap,id=n0,ifname=IFNAME,script=no,downscript=no`.
    ///
    /// # Errors
    /// [`NetnsError::Tap`] when the host has an interface of that name already, or there is
    /// no `/dev/net/tun`.
    pub fn tap(&self, host: &Host, ifname: &str, link: Link) -> Result<(), NetnsError> {
        add_tap(host, ifname, link)
    }
}

pub(crate) fn lay_cable(
    (near, near_name): (&Host, &str),
    (far, far_name): (&Host, &str),
    link: Link,
) -> Result<(), NetnsError> {
    let laid = near.run(|| netlink::add_veth(near_name, far_name, far.namespace(), link.mtu));
    laid.map_err(|source| NetnsError::Refused {
        doing: format!("lay a cable from {near_name} in {near} to {far_name} in {far}"),
        source,
    })?;
    far.set_up(far_name)
}

pub(crate) fn add_tap(host: &Host, ifname: &str, link: Link) -> Result<(), NetnsError> {
    let make = || Tap::new_named(tappers::Interface::new(ifname)?)?.set_persistent(true);
    host.run(make).map_err(|source| NetnsError::Tap {
        host: host.name().to_owned(),
        ifname: ifname.to_owned(),
        source,
    })?;
    host.set_mtu(ifname, link.mtu)?;
    host.set_up(ifname)
}

impl Default for Link {
    /// An ordinary Ethernet: 1500 bytes, path MTU 1024.
    fn default() -> Self {
        Self { mtu: 1500 }
    }
}
