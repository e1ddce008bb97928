//! What every shard has a copy of: regions, paths, addresses and the state of the interface.
//!
//! A change is made in one shard after the other, each under its lock. The first comes first: it chooses
//! the key of a region. A call returns when all shards have the change, so that no shard refuses a key
//! that the program knows, and none accesses a region whose deregistration has returned.

use std::sync::Arc;

use roce_engine::Registration;
use roce_transport::congestion::CongestionConfig;
use roce_transport::{PathHandle, PdHandle};

use super::Driver;
use super::paths::Paths;
use crate::error::Error;
use crate::process::fork;
use crate::region::Mapping;

impl Driver {
    /// Registers memory, and returns its key.
    pub(crate) fn register(&self, memory: &Arc<Mapping>, how: Registration) -> Result<u32, Error> {
        self.check_alive()?;
        let _changes = self.shards.lock_paths();
        let mut has_room = true;
        self.shards.on_others(|engine| has_room &= engine.memory_mut().reserve());
        let (key, entry) = {
            let mut engine = self.shards.first().lock_engine();
            let table = engine.memory_mut();
            if !has_room || !table.reserve() {
                return Err(Error::OutOfMemory);
            }
            let key = table.insert(Arc::clone(memory), how, fork::random);
            (key, table.entry(key))
        };
        self.shards.on_others(|engine| {
            entry.iter().for_each(|entry| engine.memory_mut().insert_entry(key, entry.clone()));
        });
        Ok(key)
    }

    /// Gives the key of a region other memory. When this returns no thread is inside the memory of
    /// before.
    pub(crate) fn register_again(
        &self,
        key: u32,
        memory: &Arc<Mapping>,
        how: Registration,
    ) -> Result<(), Error> {
        self.check_alive()?;
        let _changes = self.shards.lock_paths();
        let entry = {
            let mut engine = self.shards.first().lock_engine();
            let table = engine.memory_mut();
            table.replace(key, Arc::clone(memory), how);
            table.entry(key)
        };
        self.shards.on_others(|engine| {
            entry.iter().for_each(|entry| engine.memory_mut().insert_entry(key, entry.clone()));
        });
        Ok(())
    }

    /// Deregisters memory. When this returns no thread is inside the region.
    pub(crate) fn deregister(&self, key: u32) {
        if self.check_alive().is_ok() {
            let _changes = self.shards.lock_paths();
            self.shards.on_all(|engine| engine.memory_mut().remove(key));
        }
    }

    /// Registers a null region, and returns its key.
    pub(crate) fn register_null(&self, pd: PdHandle) -> Result<u32, Error> {
        self.check_alive()?;
        let _changes = self.shards.lock_paths();
        let key = self.shards.first().lock_engine().memory_mut().insert_null(pd, fork::random);
        self.shards.on_others(|engine| engine.memory_mut().insert_null_as(key, pd));
        Ok(key)
    }

    /// Deregisters a null region.
    pub(crate) fn deregister_null(&self, key: u32) {
        if self.check_alive().is_ok() {
            let _changes = self.shards.lock_paths();
            self.shards.on_all(|engine| engine.memory_mut().remove_null(key));
        }
    }

    /// Changes congestion control. The line rate remains.
    pub(crate) fn set_congestion(&self, config: CongestionConfig) -> Result<(), Error> {
        self.check_alive()?;
        let _changes = self.shards.lock_paths();
        self.shards.on_all(|engine| {
            let line_rate = engine.endpoint().congestion().line_rate;
            engine.endpoint_mut().set_congestion(CongestionConfig { line_rate, ..config });
        });
        Ok(())
    }

    /// Locks the paths of the device.
    pub(crate) fn paths(&self) -> Result<Paths<'_>, Error> {
        self.check_alive()?;
        Ok(self.shards.paths())
    }

    /// Takes a user from a path.
    pub(crate) fn release_path(&self, handle: PathHandle) {
        if let Ok(mut paths) = self.paths() {
            paths.release(handle);
        }
    }
}
