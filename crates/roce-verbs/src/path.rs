//! Paths: resolved routes to peers.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use roce_transport::{PathAttributes, PathHandle};
use roce_wire::{Gid, MacAddr, OuterHeaders, SealError, Sealer};

use crate::driver::Driver;
use crate::error::Error;
use crate::netlink::Flow;
use crate::resolver::NextHop;

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
        let entry = engine.paths.find(self.0.attributes.handle);
        let reachable = entry.filter(|entry| entry.via != Via::NoRoute);
        Ok(reachable.map(|entry| entry.sealer.destination_mac()))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.driver.release_path(self.attributes.handle);
    }
}

/// The way that packets of a path leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Via {
    /// Over the interface.
    Interface,
    /// To an address of this host: over `lo`, or back into this engine.
    ThisHost,
    /// Not at all: the kernel has no route.
    NoRoute,
}

/// The headers and the next hop of a path.
#[derive(Clone, Debug)]
pub(crate) struct PathEntry {
    outer: OuterHeaders,
    pub(crate) sealer: Sealer,
    pub(crate) via: Via,
    /// Keeps the flow's next hop up to date.
    flow: Arc<Flow>,
}

impl PathEntry {
    /// Makes a path without a next hop.
    ///
    /// # Errors
    /// The addresses are of two families.
    pub(crate) fn new(outer: OuterHeaders) -> Result<Self, SealError> {
        let OuterHeaders { source, destination, traffic_class, .. } = outer;
        let flow = Arc::new(Flow { source, destination, traffic_class });
        Ok(Self { sealer: Sealer::new(&outer)?, outer, via: Via::NoRoute, flow })
    }

    pub(crate) fn flow(&self) -> Flow {
        *self.flow
    }

    pub(crate) fn with_flow(self, flow: Arc<Flow>) -> Self {
        Self { flow, ..self }
    }

    /// Returns the path with another next hop, `None` if there is no route, from an interface with
    /// this MAC address.
    pub(crate) fn with_next_hop(self, hop: Option<NextHop>, own: MacAddr) -> Self {
        const ZEROS: MacAddr = MacAddr([0; 6]);
        let (via, source, destination) = match hop {
            Some(NextHop::Neighbour(station)) => (Via::Interface, own, station),
            // The kernel's own IP stack ignores such frames on `lo`.
            Some(NextHop::ThisHost) => (Via::ThisHost, ZEROS, ZEROS),
            None => (Via::NoRoute, ZEROS, ZEROS),
        };
        let sealer = self.sealer.with_source_mac(source).with_destination_mac(destination);
        Self { sealer, via, ..self }
    }

    pub(crate) fn traffic_class(&self) -> u8 {
        self.outer.traffic_class
    }

    pub(crate) fn flow_label(&self) -> u32 {
        self.outer.flow_label
    }
}

/// All paths of a device by handle.
///
/// A handle is never used for another path: its lower half is the number of a slot in the table, its
/// upper half counts the uses of that slot.
#[derive(Debug, Default)]
pub(crate) struct PathTable {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot {
    handle: PathHandle,
    /// Users: the path object, and the queue pairs that use it or have posted datagrams to it.
    users: usize,
    entry: Option<PathEntry>,
}

impl PathTable {
    /// Adds a path with one user.
    pub(crate) fn insert(&mut self, entry: PathEntry) -> PathHandle {
        let entry = Some(entry);
        match self.free.pop() {
            Some(index) => {
                let slot = &mut self.slots[index as usize];
                let handle = PathHandle(slot.handle.0.wrapping_add(ONE_USE_OF_A_SLOT));
                *slot = Slot { handle, users: 1, entry };
                handle
            }
            None => {
                let handle = PathHandle(self.slots.len() as u64);
                self.slots.push(Slot { handle, users: 1, entry });
                handle
            }
        }
    }

    pub(crate) fn find(&self, handle: PathHandle) -> Option<&PathEntry> {
        let slot = self.slots.get(index_of(handle))?;
        slot.entry.as_ref().filter(|_| slot.handle == handle)
    }

    /// Returns true if these are the attributes of a path in the table.
    pub(crate) fn contains(&self, path: &PathAttributes) -> bool {
        self.find(path.handle).is_some_and(|entry| {
            (entry.outer.source, entry.outer.destination) == (path.local, path.remote)
        })
    }

    /// Adds a user to a path.
    pub(crate) fn retain(&mut self, handle: PathHandle) {
        if let Some(slot) = self.slot(handle) {
            slot.users += 1;
        }
    }

    /// Removes a user from a path, and the path with the last one.
    pub(crate) fn release(&mut self, handle: PathHandle) {
        if let Some(slot) = self.slot(handle) {
            slot.users -= 1;
            if slot.users == 0 {
                slot.entry = None;
                self.free.push(index_of(handle) as u32);
            }
        }
    }

    /// Sets the next hops of all paths of these flows.
    pub(crate) fn set_next_hops(&mut self, hops: &HashMap<Flow, Option<NextHop>>, own: MacAddr) {
        if hops.is_empty() {
            return;
        }
        for entry in self.slots.iter_mut().filter_map(|slot| slot.entry.as_mut()) {
            if let Some(hop) = hops.get(&*entry.flow) {
                *entry = entry.clone().with_next_hop(*hop, own);
            }
        }
    }

    /// Sets the MAC address of the interface.
    pub(crate) fn set_source_mac(&mut self, own: MacAddr) {
        for entry in self.slots.iter_mut().filter_map(|slot| slot.entry.as_mut()) {
            if entry.via == Via::Interface {
                entry.sealer = entry.sealer.clone().with_source_mac(own);
            }
        }
    }

    fn slot(&mut self, handle: PathHandle) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(index_of(handle))?;
        (slot.handle == handle && slot.entry.is_some()).then_some(slot)
    }
}

/// Difference of a handle from one use of its slot to the next.
const ONE_USE_OF_A_SLOT: u64 = 1 << 32;

fn index_of(handle: PathHandle) -> usize {
    handle.0 as u32 as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes(last: u8, handle: PathHandle) -> PathAttributes {
        let address = |last| IpAddr::from([10, 0, 0, last]);
        PathAttributes { handle, local: address(1), remote: address(last), max_rate: None }
    }

    fn entry(last: u8) -> PathEntry {
        let PathAttributes { local, remote, .. } = attributes(last, PathHandle(0));
        PathEntry::new(OuterHeaders::new(local, remote)).unwrap()
    }

    #[test]
    fn a_handle_is_invalid_once_its_path_is_gone() {
        let mut table = PathTable::default();
        let old = table.insert(entry(2));
        assert!(table.contains(&attributes(2, old)));
        table.release(old);
        let new = table.insert(entry(2));
        assert!(table.contains(&attributes(2, new)));
        assert!(!table.contains(&attributes(2, old)) && table.find(old).is_none());
        // A use of the old handle does not touch the new path.
        table.release(old);
        assert!(table.contains(&attributes(2, new)));
    }

    #[test]
    fn a_path_lives_as_long_as_one_of_its_users() {
        let mut table = PathTable::default();
        let handle = table.insert(entry(2));
        table.retain(handle);
        table.release(handle);
        assert!(table.contains(&attributes(2, handle)));
        table.release(handle);
        assert!(!table.contains(&attributes(2, handle)));
    }

    #[test]
    fn a_handle_is_valid_with_the_address_of_one_peer_only() {
        let mut table = PathTable::default();
        let handle = table.insert(entry(2));
        assert!(!table.contains(&attributes(3, handle)));
    }
}
