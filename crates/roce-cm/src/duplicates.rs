//! Which requests are known: by communication id, by queue pair, and by reply.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use roce_wire::management::{CommunicationId, MANAGEMENT_DATAGRAM_LEN};
use roce_wire::{Instant, Qpn};

use crate::limits::MAX_KEPT_REPLIES;
use crate::timers::Timers;

/// A peer's name for a connection: the GUID of its device and its communication id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RemoteKey {
    pub(crate) ca_guid: u64,
    pub(crate) id: CommunicationId,
}

/// The connections by what their peers call them.
///
/// Names count only with the peer's address. A GUID follows from a MAC address, so that every neighbour knows
/// it, and devices in two network namespaces may have the same.
#[derive(Debug)]
pub(crate) struct RemoteNames {
    ids: BTreeMap<(IpAddr, RemoteKey), CommunicationId>,
    queue_pairs: BTreeMap<(IpAddr, u64, Qpn), CommunicationId>,
}

impl RemoteNames {
    pub(crate) const fn new() -> Self {
        Self { ids: BTreeMap::new(), queue_pairs: BTreeMap::new() }
    }

    /// Returns the connection that the peer at this address calls `key`.
    pub(crate) fn by_id(&self, peer: IpAddr, key: RemoteKey) -> Option<CommunicationId> {
        self.ids.get(&(peer, key)).copied()
    }

    /// Returns the live connection with this queue pair of this device of the peer.
    pub(crate) fn by_queue_pair(
        &self,
        peer: IpAddr,
        ca_guid: u64,
        qpn: Qpn,
    ) -> Option<CommunicationId> {
        self.queue_pairs.get(&(peer, ca_guid, qpn)).copied()
    }

    pub(crate) fn insert(&mut self, peer: IpAddr, key: RemoteKey, qpn: Qpn, id: CommunicationId) {
        self.ids.insert((peer, key), id);
        self.queue_pairs.insert((peer, key.ca_guid, qpn), id);
    }

    /// Removes the peer's name of the connection `id`.
    pub(crate) fn remove_id(&mut self, peer: IpAddr, key: RemoteKey, id: CommunicationId) {
        if self.by_id(peer, key) == Some(id) {
            self.ids.remove(&(peer, key));
        }
    }

    /// Removes the peer's queue pair, unless another connection than `id` has it by now.
    pub(crate) fn remove_queue_pair(
        &mut self,
        peer: IpAddr,
        ca_guid: u64,
        qpn: Qpn,
        id: CommunicationId,
    ) {
        if self.by_queue_pair(peer, ca_guid, qpn) == Some(id) {
            self.queue_pairs.remove(&(peer, ca_guid, qpn));
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.ids.len() + self.queue_pairs.len()
    }
}

/// Replies to requests whose connection or resolution is gone, by request.
///
/// The peer repeats a request until the reply arrives. Without the reply the repetition would be a new
/// request to the program.
#[derive(Debug)]
pub(crate) struct KeptReplies<K> {
    time: Duration,
    replies: BTreeMap<K, Box<[u8; MANAGEMENT_DATAGRAM_LEN]>>,
    ends: Timers<K>,
}

impl<K: Ord + Copy> KeptReplies<K> {
    /// Creates a table that keeps replies for `time` after their last use.
    pub(crate) const fn new(time: Duration) -> Self {
        Self { time, replies: BTreeMap::new(), ends: Timers::new() }
    }

    /// Keeps a reply. Returns true if another one, the oldest, had to be dropped for it.
    pub(crate) fn keep(
        &mut self,
        now: Instant,
        key: K,
        reply: Box<[u8; MANAGEMENT_DATAGRAM_LEN]>,
    ) -> bool {
        let is_new = self.replies.insert(key, reply).is_none();
        self.ends.set(key, now + self.time);
        let is_full = is_new && self.replies.len() > MAX_KEPT_REPLIES;
        if is_full && let Some(oldest) = self.ends.pop_first() {
            self.replies.remove(&oldest);
        }
        is_full
    }

    /// Returns the reply to a repeated request, and keeps it for as long again.
    pub(crate) fn repeat(
        &mut self,
        now: Instant,
        key: K,
    ) -> Option<&[u8; MANAGEMENT_DATAGRAM_LEN]> {
        let reply = self.replies.get(&key)?;
        self.ends.set(key, now + self.time);
        Some(reply)
    }

    /// Returns when the next reply is dropped.
    pub(crate) fn next_end(&self) -> Option<Instant> {
        self.ends.next()
    }

    /// Drops the replies whose time is over.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        while let Some(key) = self.ends.pop_due(now) {
            self.replies.remove(&key);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.replies.len()
    }
}
