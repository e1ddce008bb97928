//! The paths of a device: resolved routes to peers.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};

use roce_io::LO_SOURCE;
use roce_transport::{PathAttributes, PathHandle};
use roce_wire::{MacAddr, OuterHeaders, SealError, Sealer};

use crate::route::{Flow, NextHop};

/// The way that packets of a path leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// Over the interface.
    Interface,
    /// To a multicast group: over the interface, and over `lo`.
    Group,
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
    /// Keeps the handle from being used again, in the tables of all engines of the device.
    claim: Arc<()>,
}

impl PathEntry {
    /// Makes a path without a next hop.
    ///
    /// # Errors
    /// The addresses are of two families.
    pub fn new(outer: OuterHeaders) -> Result<Self, SealError> {
        let OuterHeaders { source, destination, traffic_class, .. } = outer;
        let flow = Arc::new(Flow { source, destination, traffic_class });
        let claim = Arc::default();
        Ok(Self { sealer: Sealer::new(&outer)?, outer, via: Via::NoRoute, flow, claim })
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
            Some(NextHop::Group(station)) => (Via::Group, own, station),
            // The kernel's own IP stack ignores such frames on `lo`.
            Some(NextHop::ThisHost) => (Via::ThisHost, LO_SOURCE, ZEROS),
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
///
/// Engines of one device have a table each, with the same paths under the same handles. Their owner has
/// another table, which alone is filled by [`insert`](Self::insert), and passes each path on by
/// [`insert_as`](Self::insert_as). A table may keep a path longer than the others, for its own users: no
/// slot is used again before all have removed its path.
#[derive(Debug, Default)]
pub struct PathTable {
    slots: Vec<Slot>,
    /// Slots without a path, with what other tables keep of it. Those of `insert_as` are not among them.
    free: VecDeque<(u32, Weak<()>)>,
}

#[derive(Debug)]
struct Slot {
    handle: PathHandle,
    /// Users: the path object, and the queue pairs that use it or have posted datagrams to it.
    users: usize,
    entry: Option<PathEntry>,
    /// The handle is that of another table.
    is_copy: bool,
}

/// Most free slots that are examined for a new path.
const MAX_EXAMINED: usize = 4;

impl PathTable {
    /// Adds a path with one user.
    pub fn insert(&mut self, entry: PathEntry) -> PathHandle {
        let claim = Arc::default();
        let handle = match self.take_free() {
            Some(index) => {
                PathHandle(self.slots[index as usize].handle.0.wrapping_add(ONE_USE_OF_A_SLOT))
            }
            None => PathHandle(self.slots.len() as u64),
        };
        self.store(handle, PathEntry { claim, ..entry }, false);
        handle
    }

    /// Adds a path of another table under its handle, with one user.
    pub fn insert_as(&mut self, handle: PathHandle, entry: PathEntry) {
        self.store(handle, entry, true);
    }

    /// Returns the paths, each with its handle.
    pub fn iter(&self) -> impl Iterator<Item = (PathHandle, &PathEntry)> {
        self.slots.iter().filter_map(|slot| Some((slot.handle, slot.entry.as_ref()?)))
    }

    fn store(&mut self, handle: PathHandle, entry: PathEntry, is_copy: bool) {
        let index = index_of(handle);
        while self.slots.len() <= index {
            let handle = PathHandle(self.slots.len() as u64);
            self.slots.push(Slot { handle, users: 0, entry: None, is_copy });
        }
        self.slots[index] = Slot { handle, users: 1, entry: Some(entry), is_copy };
    }

    /// Takes a free slot whose last path no table has any more.
    fn take_free(&mut self) -> Option<u32> {
        for _ in 0..self.free.len().min(MAX_EXAMINED) {
            let (index, claim) = self.free.pop_front()?;
            if claim.strong_count() == 0 {
                return Some(index);
            }
            self.free.push_back((index, claim));
        }
        None
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
        let Some(slot) = self.slot(handle) else { return };
        slot.users -= 1;
        if slot.users > 0 {
            return;
        }
        let is_copy = slot.is_copy;
        let claim = slot.entry.take().map_or_else(Weak::new, |entry| Arc::downgrade(&entry.claim));
        if !is_copy {
            self.free.push_back((index_of(handle) as u32, claim));
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
            if matches!(entry.via, Via::Interface | Via::Group) {
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
    fn a_slot_is_used_again_once_no_table_has_its_path() {
        let (mut first, mut other) = (PathTable::default(), PathTable::default());
        let old = first.insert(entry(2));
        other.insert_as(old, first.find(old).unwrap().clone());
        // A datagram of the other engine is not sent yet.
        other.retain(old);
        for table in [&mut first, &mut other] {
            table.release(old);
        }
        let new = first.insert(entry(3));
        assert_ne!(index_of(old), index_of(new));
        other.insert_as(new, first.find(new).unwrap().clone());
        assert!(other.contains(&attributes(2, old)) && other.contains(&attributes(3, new)));
        other.release(old);
        assert!(other.find(old).is_none());
        let third = first.insert(entry(4));
        assert_eq!(index_of(old), index_of(third));
        other.insert_as(third, first.find(third).unwrap().clone());
        assert!(other.contains(&attributes(4, third)) && other.find(old).is_none());
        assert_eq!(other.iter().map(|(handle, _)| handle).collect::<Vec<_>>(), [third, new]);
    }

    #[test]
    fn a_handle_is_valid_with_the_address_of_one_peer_only() {
        let mut table = PathTable::default();
        let handle = table.insert(entry(2));
        assert!(!table.contains(&attributes(3, handle)));
    }
}
