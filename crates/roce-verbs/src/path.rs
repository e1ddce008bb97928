//! Paths: resolved routes to peers.

use std::net::IpAddr;
use std::sync::Arc;

use roce_engine::{GidEntry, PathEntry, Via};
use roce_transport::{ModifyError, PathAttributes};
use roce_wire::{Gid, MacAddr, OuterHeaders};

use crate::driver::Driver;
use crate::error::Error;

/// The address of a peer and the marks of packets to it; as `ibv_ah_attr`.
///
/// ```
/// use roce_verbs::AddressVector;
/// use roce_wire::Gid;
///
/// let peer = Gid::from(std::net::IpAddr::from([10, 0, 0, 2]));
/// let vector = AddressVector { traffic_class: 0x60, ..AddressVector::new(1, peer) };
/// assert_eq!(vector.hop_limit, 64);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressVector {
    /// Row of the own GID table to send from.
    pub gid_index: u8,
    /// The peer's address.
    pub destination: Gid,
    /// IPv4 type of service or IPv6 traffic class: DSCP in the upper six bits.
    pub traffic_class: u8,
    /// IPv4 time to live or IPv6 hop limit.
    pub hop_limit: u8,
    /// 20 bits. Zero: derived from the two queue pair numbers, as rxe does. It selects the UDP source
    /// port, by which switches spread connections over links.
    pub flow_label: u32,
    /// Static rate: bytes per second from BTH to ICRC that a UC or UD queue pair sends on this path,
    /// at least 1; `None` is unlimited. A reliable connection ignores it.
    pub max_rate: Option<u64>,
}

impl AddressVector {
    /// Returns the vector to `destination` from a row of the own GID table, with default marks.
    pub const fn new(gid_index: u8, destination: Gid) -> Self {
        Self {
            gid_index,
            destination,
            traffic_class: 0,
            hop_limit: 64,
            flow_label: 0,
            max_rate: None,
        }
    }
}

/// A resolved path to a peer; as `ibv_ah`.
///
/// Made by [`Device::resolve`](crate::Device::resolve). Cheap to clone; a queue pair that uses it
/// keeps it alive. It follows the kernel's routes and neighbours as long as it lives.
#[derive(Clone, Debug)]
pub struct Path(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    driver: Arc<Driver>,
    attributes: PathAttributes,
}

impl Path {
    /// Makes a path that is the first user of its entry in the table.
    pub(crate) fn new(driver: Arc<Driver>, attributes: PathAttributes) -> Self {
        Self(Arc::new(Inner { driver, attributes }))
    }

    pub(crate) fn belongs_to(&self, driver: &Arc<Driver>) -> bool {
        Arc::ptr_eq(&self.0.driver, driver)
    }

    /// Returns the value for [`QpAttributes::path`](crate::QpAttributes::path). It is valid as long as
    /// the path, a clone, or a queue pair that uses it lives.
    pub fn attributes(&self) -> PathAttributes {
        self.0.attributes
    }

    /// Returns the own address.
    pub fn local(&self) -> IpAddr {
        self.0.attributes.local
    }

    /// Returns the peer's address.
    pub fn remote(&self) -> IpAddr {
        self.0.attributes.remote
    }

    /// Returns the MAC address of the next hop at this moment; as `ibv_resolve_eth_l2_from_gid`. It is
    /// zeros where the peer's address is one of this host, and `None` without a route.
    ///
    /// # Errors
    /// [`Error::Forked`].
    pub fn next_hop_mac(&self) -> Result<Option<MacAddr>, Error> {
        let engine = self.0.driver.engine()?;
        let entry = engine.paths().find(self.0.attributes.handle);
        let reachable = entry.filter(|entry| entry.via != Via::NoRoute);
        Ok(reachable.map(|entry| entry.sealer.destination_mac()))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.driver.release_path(self.attributes.handle);
    }
}

/// Returns the row with this number, or the default row, if its address is usable.
pub(crate) fn usable_gid(driver: &Driver, index: Option<u8>) -> Result<GidEntry, Error> {
    let interface = || driver.port().name().to_owned();
    let engine = driver.engine()?;
    let index = match index.or_else(|| engine.gids().default_index()) {
        Some(index) => index,
        None => return Err(Error::NoAddress { interface: interface() }),
    };
    engine.gids().usable(index).ok_or_else(|| Error::NoSuchGid { index, interface: interface() })
}

/// See [`Device::resolve`](crate::Device::resolve).
pub(crate) fn resolve(driver: &Arc<Driver>, vector: &AddressVector) -> Result<Path, Error> {
    if vector.max_rate == Some(0) {
        return Err(ModifyError::OutOfRange { attribute: "max_rate" }.into());
    }
    let row = usable_gid(driver, Some(vector.gid_index))?;
    let (own, peer) = (row.gid.ip(), vector.destination.ip());
    if own.is_ipv4() != peer.is_ipv4() {
        return Err(Error::FamiliesDiffer { index: row.index, own, peer });
    }
    let outer = OuterHeaders {
        traffic_class: vector.traffic_class,
        hop_limit: vector.hop_limit,
        flow_label: vector.flow_label,
        ..OuterHeaders::new(own, peer)
    };
    let entry = PathEntry::new(outer);
    let entry = entry.map_err(|_| Error::FamiliesDiffer { index: row.index, own, peer })?;
    let handle = driver.resolve(entry)?;
    let max_rate = vector.max_rate;
    let attributes = PathAttributes { handle, local: own, remote: peer, max_rate };
    Ok(Path::new(Arc::clone(driver), attributes))
}
