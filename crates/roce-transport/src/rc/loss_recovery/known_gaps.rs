//! What a requester knows of gaps, while there are some.

use core::ops::Range;

use roce_wire::RnrTimer;

use super::gaps::Gaps;
use crate::rc::send_state::{OutstandingReads, SendState};

/// Gaps, of requests at the peer and of responses here, and what is known of packets behind them.
#[derive(Debug, Default)]
pub(super) struct KnownGaps {
    pub(super) gaps: Gaps,
    /// The peer has executed everything before it, as a response behind a missing one shows.
    pub(super) executed_to: u64,
    /// First sequence number behind the newest packet that the peer reports.
    pub(super) reported_to: u64,
    /// Packets repaired since the oldest missing packet is the same.
    pub(super) repaired: u64,
    /// Packet that the peer reports missing, while responses before it are missing.
    nak: Option<u64>,
    /// Packet for which the peer has no receive, while responses before it are missing, and the wait
    /// that it asks for.
    rnr_nak: Option<(u64, RnrTimer)>,
}

/// A NAK for a packet before which responses were missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeferredNak {
    Sequence,
    Rnr(RnrTimer),
}

/// Maximum windows of packets that have arrived behind a gap while more are sent.
const MAX_WINDOWS_AHEAD: u32 = 3;
/// Windows of packets that reports may repair while the oldest missing packet is the same.
const MAX_WINDOWS_REPAIRED: u64 = 2;
/// The smallest train of new packets while gaps are known is this part of the window.
const TRAINS_PER_WINDOW: u32 = 64;

impl KnownGaps {
    /// The gaps are sent again otherwise.
    pub(super) fn forget(&mut self) {
        self.gaps.clear();
        self.nak = None;
        self.rnr_nak = None;
    }

    /// Keeps a NAK for packet `seq` until the responses before it have arrived.
    pub(super) fn defer(&mut self, seq: u64, nak: DeferredNak) {
        match nak {
            DeferredNak::Sequence => self.nak = Some(seq),
            DeferredNak::Rnr(timer) => self.rnr_nak = Some((seq, timer)),
        }
    }

    /// Takes the NAK for packet `unacked`, before which nothing is missing now. Drops older ones.
    pub(super) fn take_deferred(&mut self, unacked: u64) -> Option<DeferredNak> {
        let nak = self.nak.take_if(|seq| *seq <= unacked);
        let rnr_nak = self.rnr_nak.take_if(|(seq, _)| *seq <= unacked);
        if let Some((_, timer)) = rnr_nak.filter(|(seq, _)| *seq == unacked) {
            return Some(DeferredNak::Rnr(timer));
        }
        nak.filter(|seq| *seq == unacked).map(|_| DeferredNak::Sequence)
    }

    /// The peer has executed everything before `to`. Returns the span in which responses may be
    /// missing that is not looked through yet.
    pub(super) fn on_executed(&mut self, to: u64, send: &SendState) -> Range<u64> {
        let unacked = send.unacked();
        let start = if self.gaps.is_empty() { unacked } else { self.executed_to.max(unacked) };
        self.executed_to = self.executed_to.max(to);
        // What is behind `next` is about to be requested again.
        start..self.executed_to.min(send.next())
    }

    /// Packets that may be in flight or have arrived behind a gap: the latter need no room in the
    /// window of `size` packets. As long as little of it is free nothing new is sent, since each
    /// train would draw a report of its own.
    pub(super) fn window(&self, size: u32, send: &SendState) -> u32 {
        let end = self.executed_to.max(self.reported_to).max(send.unacked());
        let arrived = (end - send.unacked()).saturating_sub(self.gaps.packets());
        let arrived = u32::try_from(arrived).unwrap_or(u32::MAX).min(MAX_WINDOWS_AHEAD * size);
        let sent = send.in_flight() as u32; // below half the circle
        let is_worth_while = size + arrived >= sent + size / TRAINS_PER_WINDOW;
        if is_worth_while { size + arrived } else { (size + arrived).min(sent) }
    }

    /// Returns true if reports have repaired enough: a peer that contradicts itself gets nothing more.
    pub(super) fn has_repaired_enough(&self, window: u32) -> bool {
        self.repaired > MAX_WINDOWS_REPAIRED * u64::from(window)
    }

    /// Returns the first gap from `from` on that is due and may be repaired.
    ///
    /// A gap of a READ that has an earlier one waits for that, unless `in_any_order`: rxe drops a
    /// repeated request that begins before the latest. Peers that keep packets take parts in any
    /// order.
    pub(super) fn next_due(
        &self,
        mut from: u64,
        reads: &OutstandingReads,
        in_any_order: bool,
    ) -> Option<Range<u64>> {
        loop {
            let gap = self.gaps.next_due(from)?;
            //= rule rc-read-repeat-order: rxe_resp.c: duplicate_request
            //# Parts of a READ are requested again in their order from a peer that is not known to keep
            //# packets.
            //= untested: the peers of the tests take the parts of a READ in any order
            let request = reads.find(gap.start).filter(|_| !in_any_order);
            if request.is_none_or(|request| !self.gaps.begins_in(request.start..gap.start)) {
                return Some(gap);
            }
            from = gap.end;
        }
    }
}
