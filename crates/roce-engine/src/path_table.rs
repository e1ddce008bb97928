//! The paths of a device: resolved routes to peers.

use std::collections::HashMap;
use std::sync::Arc;

use roce_transport::{PathAttributes, PathHandle};
use roce_wire::{MacAddr, OuterHeaders, SealError, Sealer};

use crate::route::{Flow, NextHop};

/// The way that packets of a path leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// Over the interface.
    Interface,
    /// To an address of this host: over `lo`, or back into this engine.
    ThisHost,
    /// Not at all: the kernel has no route.
    NoRoute,
}

/// The headers and the next hop of a path.
#[derive(Clone, Debug)]
pub struct PathEntry {
    outer: OuterHeaders,
    /// The outer headers, and the ICRC over them.
    pub sealer: Sealer,
    /// The way that its packets leave.
    pub via: Via,
    /// Keeps the flow's next hop up to date.
    flow: Arc<Flow>,
}

impl PathEntry {
    /// Makes a path without a next hop.
    ///
    /// # Errors
    /// The addresses are of two families.
    pub fn new(outer: OuterHeaders) -> Result<Self, SealError> {
        let OuterHeaders { source, destination, traffic_class, .. } = outer;
        let flow = Arc::new(Flow { source, destination, traffic_class });
        Ok(Self { sealer: Sealer::new(&outer)?, outer, via: Via::NoRoute, flow })
    }

    /// Returns what the kernel chooses the route by.
    pub fn flow(&self) -> Flow {
        *self.flow
    }

    /// Returns the path with a handle that keeps its flow in use.
    pub fn with_flow(self, flow: Arc<Flow>) -> Self {
        Self { flow, ..self }
    }

    /// Returns the path with another next hop, `None` if there is no route, from an interface with
    /// this MAC address.
    pub fn with_next_hop(self, hop: Option<NextHop>, own: MacAddr) -> Self {
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

    /// Returns the IPv4 type of service or the IPv6 traffic class.
    #[inline]
    pub fn traffic_class(&self) -> u8 {
        self.outer.traffic_class
    }

    /// Returns the flow label; zero: it follows from the queue pair numbers.
    #[inline]
    pub fn flow_label(&self) -> u32 {
        self.outer.flow_label
    }
}

/// All paths of a device by handle.
///
/// A handle is never used for another path: its lower half is the number of a slot in the table, its
/// upper half counts the uses of that slot.
#[derive(Debug, Default)]
pub struct PathTable {
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
    pub fn insert(&mut self, entry: PathEntry) -> PathHandle {
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

    /// Returns a path.
    #[inline]
    pub fn find(&self, handle: PathHandle) -> Option<&PathEntry> {
        let slot = self.slots.get(index_of(handle))?;
        slot.entry.as_ref().filter(|_| slot.handle == handle)
    }

    /// Returns true if these are the attributes of a path in the table.
    pub fn contains(&self, path: &PathAttributes) -> bool {
        self.find(path.handle).is_some_and(|entry| {
            (entry.outer.source, entry.outer.destination) == (path.local, path.remote)
        })
    }

    /// Adds a user to a path.
    pub fn retain(&mut self, handle: PathHandle) {
        if let Some(slot) = self.slot(handle) {
            slot.users += 1;
        }
    }

    /// Removes a user from a path, and the path with the last one.
    pub fn release(&mut self, handle: PathHandle) {
        if let Some(slot) = self.slot(handle) {
            slot.users -= 1;
            if slot.users == 0 {
                slot.entry = None;
                self.free.push(index_of(handle) as u32);
            }
        }
    }

    /// Sets the next hops of all paths of these flows.
    pub fn set_next_hops(&mut self, hops: &HashMap<Flow, Option<NextHop>>, own: MacAddr) {
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
    pub fn set_source_mac(&mut self, own: MacAddr) {
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
    use std::net::IpAddr;

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
