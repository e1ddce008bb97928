//! Links: veth pairs and tap devices.

use tappers::linux::Tap;

use crate::{Host, NetnsError, netlink};

/// Properties of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// MTU in bytes, 68 ..= 65535. RoCE's largest path MTU needs 4176.
    pub mtu: u32,
}

impl Default for Link {
    /// 1500 bytes, which allow path MTU 1024.
    fn default() -> Self {
        Self { mtu: 1500 }
    }
}

/// Connects two hosts by a veth pair and sets both interfaces up. The near end gets this number, if there is one.
pub(crate) fn add_veth_pair(
    (near, near_name, number): (&Host, &str, Option<u32>),
    (far, far_name): (&Host, &str),
    link: Link,
) -> Result<(), NetnsError> {
    let near_end = (near_name, number);
    let laid = near.run(|| netlink::add_veth(near_end, far_name, far.namespace(), link.mtu));
    laid.map_err(|source| NetnsError::Refused {
        doing: format!("connect {near_name} in {near} to {far_name} in {far}"),
        source,
    })?;
    far.set_up(far_name)
}

/// Creates a tap device that exists as long as the host, and sets it up.
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
