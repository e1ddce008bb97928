//! The interfaces of this network namespace.

use std::{
    io,
    net::IpAddr,
    os::fd::{AsFd, BorrowedFd},
};

use pnet_datalink::NetworkInterface;
use socket2::{Domain, Type};

use crate::{error::OpenError, sys};

/// An interface as the kernel describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceInfo {
    /// Its name, such as `eth0`.
    pub name: String,
    /// Its index in this network namespace, never 0.
    pub index: u32,
    /// Its MAC address; zeros on `lo`, `None` where there is none.
    pub mac: Option<[u8; 6]>,
    /// Its MTU in bytes.
    pub mtu: u32,
    /// Its IP addresses in the kernel's order.
    pub addresses: Vec<InterfaceAddress>,
    /// State and properties.
    pub flags: InterfaceFlags,
    /// Kind of device.
    pub kind: InterfaceKind,
    /// Speed in Mbit/s, if the driver knows it.
    pub speed: Option<u32>,
}

/// An IP address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// The address.
    pub address: IpAddr,
    /// Bits of its network's prefix.
    pub prefix_len: u8,
}

/// State and properties of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterfaceFlags {
    /// Switched on by the administrator.
    pub up: bool,
    /// Has a carrier and may pass frames.
    pub running: bool,
    /// Is the loopback.
    pub loopback: bool,
    /// Can broadcast, as Ethernet does.
    pub broadcast: bool,
    /// Is one end of a point-to-point link.
    pub point_to_point: bool,
    /// Takes multicast.
    pub multicast: bool,
    /// Carries Ethernet frames.
    pub ethernet: bool,
}

/// Kind of device of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InterfaceKind {
    /// The loopback.
    Loopback,
    /// One end of a veth pair.
    Veth,
    /// A tap device (or tun, which carries no Ethernet).
    Tap,
    /// A bridge.
    Bridge,
    /// A VLAN on another interface.
    Vlan,
    /// Any other device, by its driver's name, such as `virtio_net` or `mlx5_core`.
    Driver(String),
    /// The kernel does not report a driver.
    Unknown,
}

impl InterfaceKind {
    /// Returns true if trains are known to pass whole or to be segmented in software, so that they
    /// cost nothing.
    pub fn segments_in_software(&self) -> bool {
        matches!(self, Self::Loopback | Self::Veth | Self::Tap | Self::Bridge)
    }

    fn of(is_loopback: bool, driver: io::Result<String>) -> Self {
        match (is_loopback, driver.as_deref()) {
            (true, _) => Self::Loopback,
            (_, Ok("veth")) => Self::Veth,
            (_, Ok("tun")) => Self::Tap,
            (_, Ok("bridge")) => Self::Bridge,
            (_, Ok("vlan" | "802.1Q VLAN Support")) => Self::Vlan,
            (_, Ok("") | Err(_)) => Self::Unknown,
            (_, Ok(driver)) => Self::Driver(driver.to_owned()),
        }
    }
}

/// Makes the kernel complete checksums and segment before frames reach an interface of this thread's
/// network namespace, as `ethtool -K NAME tso off tx off` does: the other end of a veth receives
/// single packets as they would be on a wire. Needs CAP_NET_ADMIN.
///
/// # Errors
/// The kernel's error, such as that there is no such interface.
///
/// ```no_run
/// roce_io::disable_transmit_offload("eth0")?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn disable_transmit_offload(interface: &str) -> io::Result<()> {
    let socket = sys::socket::open(Domain::IPV4, Type::DGRAM, None)?;
    sys::interface::disable_transmit_offload(socket.as_fd(), interface)
}

/// Lists the interfaces of this thread's network namespace. One that disappears meanwhile is left
/// out.
///
/// ```
/// for interface in roce_io::interfaces()? {
///     println!("{} (MTU {}): {:?}", interface.name, interface.mtu, interface.addresses);
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// The kernel's error if it gives no socket for the queries, or memory has run out.
pub fn interfaces() -> io::Result<Vec<InterfaceInfo>> {
    // Any socket will do: it only selects the network namespace.
    let socket = sys::socket::open(Domain::UNIX, Type::DGRAM, None)?;
    Ok(listed()?.into_iter().filter_map(|found| describe(socket.as_fd(), found).ok()).collect())
}

/// Returns the index of an interface of this thread's network namespace; `None` if there is none of this
/// name. Costs far less than [`interfaces`] where there are many.
///
/// # Errors
/// The kernel's error if it gives no socket for the query.
pub fn interface_index(name: &str) -> io::Result<Option<u32>> {
    let socket = sys::socket::open(Domain::UNIX, Type::DGRAM, None)?;
    Ok(sys::interface::index(socket.as_fd(), name).ok())
}

/// Returns the loopback of this thread's network namespace, if there is one. Costs less than
/// [`interfaces`] where there are many.
///
/// # Errors
/// The kernel's error if it gives no socket for the queries, or memory has run out.
pub fn loopback_interface() -> io::Result<Option<InterfaceInfo>> {
    let socket = sys::socket::open(Domain::UNIX, Type::DGRAM, None)?;
    let found = listed()?.into_iter().find(NetworkInterface::is_loopback);
    Ok(found.and_then(|found| describe(socket.as_fd(), found).ok()))
}

/// Returns an Ethernet interface of this thread's network namespace, which may be down.
pub(crate) fn find_known(name: &str) -> Result<InterfaceInfo, OpenError> {
    let failed =
        |source| OpenError::Os { name: name.to_owned(), step: "listing interfaces", source };
    let socket = sys::socket::open(Domain::UNIX, Type::DGRAM, None).map_err(failed)?;
    let all = listed().map_err(failed)?;
    let known = || all.iter().map(|interface| interface.name.clone()).collect();
    let found = all.iter().find(|interface| interface.name == name).cloned();
    let found = found.and_then(|found| describe(socket.as_fd(), found).ok());
    let Some(found) = found else {
        return Err(OpenError::NoSuchInterface { name: name.to_owned(), known: known() });
    };
    if !found.flags.ethernet {
        return Err(OpenError::NotEthernet { name: name.to_owned() });
    }
    Ok(found)
}

/// Returns an interface of this thread's network namespace that can carry packets now.
pub(crate) fn find_interface(name: &str) -> Result<InterfaceInfo, OpenError> {
    let found = find_known(name)?;
    if !found.flags.up {
        return Err(OpenError::InterfaceDown { name: name.to_owned() });
    }
    Ok(found)
}

/// Lists the addresses of this thread's network namespace, each with the name of its interface.
pub(crate) fn listed_addresses() -> io::Result<Vec<(String, IpAddr)>> {
    let of_one = |found: NetworkInterface| {
        found.ips.into_iter().map(move |network| (found.name.clone(), network.ip()))
    };
    Ok(listed()?.into_iter().flat_map(of_one).collect())
}

/// Lists the interfaces. That opens sockets, which a child of a fork meanwhile would keep.
///
/// # Errors
/// Memory or descriptors have run out. pnet_datalink returns no interface then, and each namespace has a
/// loopback.
fn listed() -> io::Result<Vec<NetworkInterface>> {
    sys::fork::between_forks(|| {
        let found = pnet_datalink::interfaces();
        let error = io::Error::last_os_error();
        if found.is_empty() { Err(error) } else { Ok(found) }
    })
}

fn describe(socket: BorrowedFd<'_>, found: NetworkInterface) -> io::Result<InterfaceInfo> {
    use sys::interface as query;

    let bits = query::flags(socket, &found.name)?;
    let has = |bit: i32| bits & bit as u32 != 0;
    let hardware = query::hardware_type(socket, &found.name)?;
    let flags = InterfaceFlags {
        up: has(libc::IFF_UP),
        running: has(libc::IFF_RUNNING),
        loopback: has(libc::IFF_LOOPBACK),
        broadcast: has(libc::IFF_BROADCAST),
        point_to_point: has(libc::IFF_POINTOPOINT),
        multicast: has(libc::IFF_MULTICAST),
        ethernet: [libc::ARPHRD_ETHER, libc::ARPHRD_LOOPBACK].contains(&hardware),
    };
    let addresses = found
        .ips
        .iter()
        .map(|network| InterfaceAddress { address: network.ip(), prefix_len: network.prefix() });
    Ok(InterfaceInfo {
        mtu: query::mtu(socket, &found.name)?,
        speed: query::speed(socket, &found.name).ok().flatten(),
        kind: InterfaceKind::of(flags.loopback, query::driver(socket, &found.name)),
        addresses: addresses.collect(),
        mac: found.mac.map(|mac| mac.octets()).filter(|_| flags.ethernet),
        index: found.index,
        name: found.name,
        flags,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_is_listed_as_what_it_is() {
        let all = interfaces().unwrap();
        let lo = all.iter().find(|interface| interface.name == "lo").unwrap();
        assert_eq!(lo.kind, InterfaceKind::Loopback);
        assert_eq!(lo.mac, Some([0; 6]));
        assert!(lo.flags.loopback && lo.flags.ethernet && lo.index > 0 && lo.mtu > 1500);
    }
}
