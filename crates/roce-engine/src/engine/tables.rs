//! What an engine looks up.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::ops::Deref;

use roce_transport::{Endpoint, Observer, PathHandle};
use roce_wire::Qpn;

use crate::datagram_paths::DatagramPaths;
use crate::gid_table::GidTable;
use crate::key_hasher::KeyHasher;
use crate::memory_table::MemoryTable;
use crate::own_numbers::OwnNumbers;
use crate::path_table::PathTable;
use crate::region::Region;

/// What an engine looks up.
pub(super) struct Tables<R> {
    /// Registered memory.
    pub(super) memory: MemoryTable<R>,
    /// The paths to peers.
    pub(super) paths: PathTable,
    /// The paths of posted datagrams, by the number of their queue pair.
    datagram_paths: HashMap<u32, DatagramPaths, BuildHasherDefault<KeyHasher>>,
    /// The addresses of the device.
    pub(super) gids: GidTable,
    /// The queue pair numbers of this process.
    pub(super) numbers: OwnNumbers,
}

impl<R: Deref<Target: Region>> Tables<R> {
    pub(super) fn new(gids: GidTable) -> Self {
        Self {
            memory: MemoryTable::default(),
            paths: PathTable::default(),
            datagram_paths: HashMap::default(),
            gids,
            numbers: OwnNumbers::default(),
        }
    }

    /// Keeps the path of a datagram until `endpoint` has sent it.
    pub(super) fn keep_path(
        &mut self,
        endpoint: &Endpoint<impl Observer>,
        queue_pair: Qpn,
        path: PathHandle,
    ) {
        let outstanding = || endpoint.query_qp(queue_pair).map_or(0, |info| info.sends_outstanding);
        let users = self.datagram_paths.entry(queue_pair.get()).or_default();
        users.on_posted(&mut self.paths, path, outstanding);
    }

    /// Removes what belongs to a queue pair: bindings of windows, and uses of paths.
    pub(super) fn forget(&mut self, queue_pair: Qpn) {
        self.memory.unbind_windows_of(queue_pair);
        if let Some(mut users) = self.datagram_paths.remove(&queue_pair.get()) {
            users.release(&mut self.paths);
        }
    }
}
