//! Received packets that no expectation has taken yet.

use std::collections::VecDeque;

use roce_dissect::{Filter, Packet};

use super::held_packet::HeldPacket;

/// Received packets in their order, at most [`MAX_HELD`].
#[derive(Debug, Default)]
pub(super) struct Inbox {
    held: VecDeque<HeldPacket>,
    received: u64,
    forgotten: u64,
}

impl Inbox {
    /// Keeps a received packet; forgets the oldest if there are too many.
    pub(super) fn push(&mut self, packet: &Packet<'_>) {
        self.received += 1;
        if self.held.len() == MAX_HELD {
            self.held.pop_front();
            self.forgotten += 1;
        }
        self.held.push_back(HeldPacket::of(packet));
    }

    /// Takes the first packet out that passes, of those that came after the first `seen`.
    pub(super) fn take(&mut self, filter: &Filter, seen: u64) -> Option<HeldPacket> {
        let at = self.find(filter, seen)?;
        self.held.remove(at)
    }

    /// Returns the first packet that passes, of those that came after the first `seen`.
    pub(super) fn first(&self, filter: &Filter, seen: u64) -> Option<&HeldPacket> {
        self.find(filter, seen).and_then(|at| self.held.get(at))
    }

    /// Returns the number of received packets, which [`take`](Self::take) and [`first`](Self::first) take
    /// as `seen` to look at each only once.
    pub(super) fn received(&self) -> u64 {
        self.received
    }

    /// Returns how many packets wait.
    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    /// Returns how many packets were too many.
    pub(super) fn forgotten(&self) -> u64 {
        self.forgotten
    }

    fn find(&self, filter: &Filter, seen: u64) -> Option<usize> {
        // Those behind the ones that were seen are at the end.
        let fresh = usize::try_from(self.received - seen.min(self.received)).unwrap_or(usize::MAX);
        let first = if seen == 0 { 0 } else { self.held.len().saturating_sub(fresh) };
        let passes = |held: &HeldPacket| held.read(|packet| filter.matches(packet)) == Some(true);
        (first..self.held.len()).find(|at| passes(&self.held[*at]))
    }
}

/// Most packets that are kept.
const MAX_HELD: usize = 4096;
