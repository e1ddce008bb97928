//! The bytes that the reorder buffers of an endpoint share.

use alloc::collections::BTreeMap;
use core::net::IpAddr;
use core::time::Duration;

use crate::Instant;

/// The bytes that all reorder buffers of an endpoint may hold.
#[derive(Debug)]
pub(crate) struct ReorderBudget {
    limit: usize,
    used: usize,
    /// Bytes of each peer that has some.
    by_peer: BTreeMap<IpAddr, usize>,
    /// When the ages of what is kept are checked next; `None` while nothing is kept.
    check_at: Option<Instant>,
}

/// How often ages are checked. What is kept goes at the second check in a row without progress.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

impl ReorderBudget {
    /// A budget of `limit` bytes; with 0 nothing is kept.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, used: 0, by_peer: BTreeMap::new(), check_at: None }
    }

    /// Bytes charged by all queue pairs.
    pub(crate) const fn used(&self) -> usize {
        self.used
    }

    /// When [`take_check`](Self::take_check) has something to do.
    pub(crate) const fn check_at(&self) -> Option<Instant> {
        self.check_at
    }

    /// Returns true if the ages of what is kept are to be checked now.
    pub(crate) fn take_check(&mut self, now: Instant) -> bool {
        let is_due = self.check_at.is_some_and(|at| at <= now);
        if is_due {
            self.check_at = (self.used > 0).then(|| now + CHECK_INTERVAL);
        }
        is_due
    }

    /// Returns true if a buffer that holds `held` bytes of `peer` may hold `more`.
    pub(crate) fn admits(&self, held: usize, more: usize, peer: IpAddr) -> bool {
        let of_peer = self.by_peer.get(&peer).copied().unwrap_or(0);
        held + more <= self.limit.saturating_sub(self.used + more)
            && of_peer + more <= self.limit / 4 * 3
    }

    /// Charges bytes of `peer`.
    pub(crate) fn charge(&mut self, bytes: usize, peer: IpAddr, now: Instant) {
        self.used += bytes;
        *self.by_peer.entry(peer).or_default() += bytes;
        self.check_at.get_or_insert(now + CHECK_INTERVAL);
    }

    /// Takes bytes back that [`charge`](Self::charge) was called for.
    pub(crate) fn release(&mut self, bytes: usize, peer: IpAddr) {
        self.used -= bytes;
        if let Some(of_peer) = self.by_peer.get_mut(&peer) {
            *of_peer -= bytes;
            if *of_peer == 0 {
                self.by_peer.remove(&peer);
            }
        }
    }
}
