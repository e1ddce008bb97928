//! Paths: how packets of a queue pair reach its peer.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;

use roce_transport::{PathAttributes, PathHandle};
use roce_wire::{Gid, MacAddr, OuterHeaders, SealError, Sealer};

use crate::core::Core;

/// Where a peer is and how packets to it are marked; as `ibv_ah_attr`.
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
    /// 20 bits. Zero: derived from the two queue pair numbers, as rxe does. It decides
    /// the UDP source port, by which switches spread connections over links.
    pub flow_label: u32,
}

impl AddressVector {
    /// To `destination` from a row of the own GID table, with nothing special about it.
    pub const fn new(gid_index: u8, destination: Gid) -> Self {
        Self { gid_index, destination, traffic_class: 0, hop_limit: 64, flow_label: 0 }
    }
}

/// A way to a peer that was looked up; as `ibv_ah`.
///
/// Made by [`Device::resolve`](crate::Device::resolve). Cheap to clone; a queue pair
/// that uses it keeps it alive.
#[derive(Clone, Debug)]
pub struct Path(Arc<Owned>);

#[derive(Debug)]
struct Owned {
    core: Arc<Core>,
    attributes: PathAttributes,
}

impl Path {
    pub(crate) fn new(core: Arc<Core>, attributes: PathAttributes) -> Self {
        Self(Arc::new(Owned { core, attributes }))
    }

    pub(crate) fn belongs_to(&self, core: &Arc<Core>) -> bool {
        Arc::ptr_eq(&self.0.core, core)
    }

    /// What goes into [`QpAttributes::path`](crate::QpAttributes::path).
    pub fn attributes(&self) -> PathAttributes {
        self.0.attributes
    }

    /// The own address.
    pub fn local(&self) -> IpAddr {
        self.0.attributes.local
    }

    /// The peer's address.
    pub fn remote(&self) -> IpAddr {
        self.0.attributes.remote
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        self.core.forget_path(self.attributes.handle);
    }
}

/// Whether packets of a path touch a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Via {
    /// Over the interface.
    Interface,
    /// To an address of this host: over `lo`, or back into this engine.
    ThisHost,
}

/// What the driver needs to send a packet along a path.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    outer: OuterHeaders,
    pub(crate) sealer: Sealer,
    pub(crate) via: Via,
}

impl Entry {
    /// # Errors
    /// The addresses are of two families.
    pub(crate) fn new(outer: OuterHeaders, via: Via) -> Result<Self, SealError> {
        Ok(Self { sealer: Sealer::new(&outer)?, outer, via })
    }

    pub(crate) fn flow_label(&self) -> u32 {
        self.outer.flow_label
    }
}

/// All paths of a device by handle.
#[derive(Debug, Default)]
pub(crate) struct PathTable {
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
}

impl PathTable {
    pub(crate) fn insert(&mut self, entry: Entry) -> PathHandle {
        match self.free.pop() {
            Some(index) => {
                self.entries[index as usize] = Some(entry);
                PathHandle(index)
            }
            None => {
                self.entries.push(Some(entry));
                PathHandle(self.entries.len() as u32 - 1)
            }
        }
    }

    pub(crate) fn find(&self, handle: PathHandle) -> Option<&Entry> {
        self.entries.get(handle.0 as usize)?.as_ref()
    }

    /// The peers that packets go to over the interface, each once.
    pub(crate) fn peers(&self) -> HashSet<IpAddr> {
        let far = |entry: &&Entry| entry.via == Via::Interface;
        self.entries.iter().flatten().filter(far).map(|entry| entry.outer.destination).collect()
    }

    /// Sends what goes to `peer` to this station from now on.
    pub(crate) fn point_at(&mut self, peer: IpAddr, station: MacAddr) {
        for entry in self.entries.iter_mut().flatten() {
            if entry.via == Via::Interface && entry.outer.destination == peer {
                entry.outer.destination_mac = station;
                entry.sealer = entry.sealer.clone().with_destination_mac(station);
            }
        }
    }

    pub(crate) fn remove(&mut self, handle: PathHandle) {
        if let Some(slot) = self.entries.get_mut(handle.0 as usize)
            && slot.take().is_some()
        {
            self.free.push(handle.0);
        }
    }
}
