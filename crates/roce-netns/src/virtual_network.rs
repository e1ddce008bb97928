//! Creation and cabling of hosts.

use tappers::linux::Tap;

use crate::{Host, NetnsError, Switch, netlink};

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

/// Properties of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// MTU in bytes, 68 ..= 65535. RoCE's largest path MTU needs 4176.
    pub mtu: u32,
}

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
        add_veth_pair((near, near_name), (far, far_name), link)
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

pub(crate) fn add_veth_pair(
    (near, near_name): (&Host, &str),
    (far, far_name): (&Host, &str),
    link: Link,
) -> Result<(), NetnsError> {
    let laid = near.run(|| netlink::add_veth(near_name, far_name, far.namespace(), link.mtu));
    laid.map_err(|source| NetnsError::Refused {
        doing: format!("connect {near_name} in {near} to {far_name} in {far}"),
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
    /// 1500 bytes, which allow path MTU 1024.
    fn default() -> Self {
        Self { mtu: 1500 }
    }
}
