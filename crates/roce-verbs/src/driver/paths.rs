//! The paths of a device, of which every shard has a copy, and changes of all shards.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::MutexGuard;

use roce_engine::{Flow, NextHop, PathEntry, PathTable};
use roce_transport::PathHandle;

use super::driven_engine::EngineGuard;
use super::shards::Shards;
use crate::engine;
use crate::netlink::Link;

/// The paths of a device, locked.
pub(crate) struct Paths<'a> {
    table: MutexGuard<'a, PathTable>,
    shards: &'a Shards,
}

impl Paths<'_> {
    /// Enters a path, with one user.
    pub(super) fn insert(&mut self, entry: PathEntry) -> PathHandle {
        let handle = self.table.insert(entry);
        let entry = self.table.find(handle);
        self.shards.on_all(|engine| {
            entry.iter().for_each(|entry| engine.paths_mut().insert_as(handle, (*entry).clone()));
        });
        handle
    }

    /// Adds a user to a path.
    pub(crate) fn retain(&mut self, handle: PathHandle) {
        self.table.retain(handle);
        self.shards.on_all(|engine| engine.paths_mut().retain(handle));
    }

    /// Takes a user from a path.
    pub(crate) fn release(&mut self, handle: PathHandle) {
        self.table.release(handle);
        for shard in self.shards.iter() {
            // Packets of a destroyed queue pair may still need the path.
            let _forked = shard.end(|engine| engine.paths_mut().release(handle));
        }
    }

    /// Sets the next hops of all paths of these flows.
    pub(super) fn set_next_hops(&mut self, hops: &HashMap<Flow, Option<NextHop>>) {
        let own = self.shards.common.port.mac();
        self.table.set_next_hops(hops, own);
        self.shards.on_all(|engine| engine.paths_mut().set_next_hops(hops, own));
    }

    /// Stores the state of the interface; see [`Port::store`](crate::port::Port::store).
    pub(super) fn store_port(&mut self, link: Option<Option<Link>>, addresses: Option<&[IpAddr]>) {
        let change = self.shards.common.port.store(link, addresses);
        self.table.set_source_mac(self.shards.common.port.mac());
        let mut is_first = true;
        self.shards.on_all(|engine| {
            let has_other_gids = change.apply(engine);
            engine::update_agent(engine, self.shards.common.port.connection_mtu());
            // A context has each event of the port once.
            if std::mem::take(&mut is_first) {
                change.raise_events(engine, has_other_gids);
            }
        });
    }
}

impl Shards {
    /// Locks the paths of the device.
    pub(super) fn paths(&self) -> Paths<'_> {
        Paths { table: self.lock_paths(), shards: self }
    }

    /// Does `work` on the engine of one shard after the other. The caller has locked the paths.
    pub(super) fn on_all(&self, mut work: impl FnMut(&mut EngineGuard<'_>)) {
        self.iter().for_each(|shard| work(&mut shard.lock_engine()));
    }

    /// As [`on_all`](Self::on_all), without the first shard.
    pub(super) fn on_others(&self, mut work: impl FnMut(&mut EngineGuard<'_>)) {
        self.iter().skip(1).for_each(|shard| work(&mut shard.lock_engine()));
    }
}
