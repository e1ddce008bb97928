//! Which device, and which of its addresses, reaches a peer.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use roce_io::{InterfaceInfo, interfaces};

use super::error::Error;
use crate::netlink::Netlink;

/// An interface that carries RoCE, and an address of it.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) interface: String,
    pub(crate) address: IpAddr,
}

/// The two ends of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Ends {
    pub(crate) local: Place,
    pub(crate) remote: IpAddr,
}

/// Returns true for addresses that stand for any of this host's, as rdma_cm takes them: the unspecified
/// and the loopback address.
pub(crate) fn is_any(address: IpAddr) -> bool {
    address.is_unspecified() || address.is_loopback()
}

/// Returns the unspecified address of the IP version of another.
pub(crate) const fn any_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    }
}

/// Returns true for interfaces that can carry RoCE.
fn is_candidate(it: &InterfaceInfo) -> bool {
    it.mac.is_some() && !it.flags.loopback && !it.flags.point_to_point && it.flags.up
}

/// Returns the interfaces that can carry RoCE.
fn candidates() -> Result<Vec<InterfaceInfo>, Error> {
    Ok(interfaces()?.into_iter().filter(is_candidate).collect())
}

fn addresses(interface: &InterfaceInfo) -> impl Iterator<Item = IpAddr> {
    interface.addresses.iter().map(|it| it.address)
}

/// Returns the first address of the same family, one that is not link-local if there is one.
fn like(interface: &InterfaceInfo, other: IpAddr) -> Option<IpAddr> {
    let is_link_local = |it: &IpAddr| matches!(it, IpAddr::V6(v6) if v6.is_unicast_link_local());
    let alike = || addresses(interface).filter(|it| it.is_ipv4() == other.is_ipv4());
    alike().find(|it| !is_link_local(it)).or_else(|| alike().next())
}

/// Returns the interfaces that have an address.
pub(crate) fn all_with_addresses() -> Result<Vec<String>, Error> {
    let with_address = candidates()?.into_iter().filter(|it| !it.addresses.is_empty());
    Ok(with_address.map(|it| it.name).collect())
}

/// Returns all addresses of this host's interfaces.
pub(crate) fn of_this_host() -> Result<Vec<IpAddr>, Error> {
    Ok(interfaces()?.iter().flat_map(addresses).collect())
}

/// Returns the interface that has an address.
pub(crate) fn place_of(address: SocketAddr) -> Result<Place, Error> {
    let scope = scope_of(address);
    let address = address.ip();
    let has_it = |it: &&InterfaceInfo| {
        scope.is_none_or(|index| it.index == index) && addresses(it).any(|own| own == address)
    };
    let all = interfaces()?;
    match all.iter().filter(|it| is_candidate(it)).find(has_it) {
        Some(found) => Ok(Place { interface: found.name.clone(), address }),
        None if all.iter().flat_map(addresses).any(|own| own == address) => {
            Err(Error::NoDevice { address })
        }
        None => Err(Error::ForeignAddress { address }),
    }
}

/// Returns the interface's number in an IPv6 link-local address.
fn scope_of(address: SocketAddr) -> Option<u32> {
    match address {
        SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() => {
            Some(v6.scope_id()).filter(|index| *index != 0)
        }
        _ => None,
    }
}

/// Returns the ends of a connection from `source`, or from any address, to `destination`. An
/// address of this host is reached over its interface, any over the first.
pub(crate) fn ends_to(source: Option<SocketAddr>, destination: SocketAddr) -> Result<Ends, Error> {
    let source = source.filter(|it| !is_any(it.ip()));
    if source.is_some_and(|it| it.is_ipv4() != destination.is_ipv4()) {
        return Err(Error::FamiliesDiffer);
    }
    let remote = destination.ip();
    if is_any(remote) {
        let local = match source {
            Some(source) => place_of(source)?,
            None => first_like(remote)?,
        };
        let remote = local.address;
        return Ok(Ends { local, remote });
    }
    if let Some(source) = source {
        return Ok(Ends { local: place_of(source)?, remote });
    }
    if let Ok(local) = place_of(destination) {
        return Ok(Ends { local, remote });
    }
    let route = Netlink::open()?.interface_to(scope_of(destination), remote)?;
    let (index, preferred) = route.ok_or(Error::NoRoute { destination: remote })?;
    let all = candidates()?;
    let found = all.iter().find(|it| it.index == index);
    let found = found.ok_or(Error::NoDevice { address: remote })?;
    let has_it = |own: &IpAddr| addresses(found).any(|it| it == *own);
    let address = preferred.filter(has_it).or_else(|| like(found, remote));
    let address = address.ok_or(Error::NoDevice { address: remote })?;
    Ok(Ends { local: Place { interface: found.name.clone(), address }, remote })
}

fn first_like(address: IpAddr) -> Result<Place, Error> {
    let of = |it: &InterfaceInfo| {
        let own = like(it, address)?;
        Some(Place { interface: it.name.clone(), address: own })
    };
    candidates()?.iter().find_map(of).ok_or(Error::NoDevice { address })
}
