//! Whether the peer keeps packets behind a missing one, or goes back N.
//!
//! The two ends agree on it out of band, or the requester infers it from what no peer that goes
//! back N can say: see [`KeepingPeer::on_executed_after_nak`].

/// What is known of how the peer treats packets behind a missing one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KeepingPeer {
    is_agreed: bool,
    evidence: u8,
    /// Repairs behind which the next packet was missing too, less those behind which it was not.
    contradictions: u8,
    is_disproved: bool,
    /// First sequence number behind all that may have been sent twice.
    resent_to: u64,
    /// A go-back-N has begun with a NAK for packets that were all sent once, and nothing has been
    /// acknowledged since.
    is_first_nak: bool,
}

/// Packets sent once that have to be acknowledged before the peer is taken for one that keeps packets.
const MIN_SENT_ONCE: u64 = 8;
/// How often the peer must have acknowledged what only packets that it keeps explain. Once may be a
/// coincidence of a late packet and copies that the network made.
const MIN_EVIDENCE: u8 = 2;
/// Contradictions that end the belief for good. Losses in a row make some too.
const MAX_CONTRADICTIONS: u8 = 3;

impl KeepingPeer {
    /// A peer of which nothing is known, or that keeps packets and reports gaps as `is_agreed` says.
    pub(super) fn new(is_agreed: bool) -> Self {
        Self { is_agreed, ..Self::default() }
    }

    /// Returns true if only missing packets are to be sent again.
    pub(super) const fn is_believed(self) -> bool {
        (self.is_agreed || self.evidence >= MIN_EVIDENCE) && !self.is_disproved
    }

    /// Returns true if the peer reports gaps.
    pub(super) const fn reports(self) -> bool {
        self.is_agreed && !self.is_disproved
    }

    /// What is before `to` was sent again, as a probe or a repair.
    pub(super) fn on_resent(&mut self, to: u64) {
        self.resent_to = self.resent_to.max(to);
    }

    /// Everything is sent again, after what ends at `missing_end`; everything before `sent_to` was sent.
    /// `is_lone_nak`: because of a NAK, while nothing else was sent again.
    pub(super) fn on_go_back(&mut self, missing_end: u64, sent_to: u64, is_lone_nak: bool) {
        self.is_first_nak = is_lone_nak && self.resent_to <= missing_end;
        self.on_resent(sent_to);
    }

    /// Everything before `to` is executed, where a NAK has made the requester go back from
    /// `sent_to`, and what is before `next` is sent again.
    ///
    /// A packet drew that NAK: it had arrived while an earlier one was missing, and a peer that
    /// goes back N dropped it. If nothing of what was sent before the NAK was sent twice, but for
    /// the first packets, and all of it is executed now, then the peer has kept that packet.
    /// Neither late packets nor repeated ones explain it, only a copy that the network made.
    pub(super) fn on_executed_after_nak(&mut self, to: u64, next: u64, sent_to: u64) {
        let is_first = core::mem::take(&mut self.is_first_nak);
        if is_first && to >= sent_to && to >= next + MIN_SENT_ONCE {
            self.on_evidence();
        }
    }

    fn on_evidence(&mut self) {
        self.evidence = self.evidence.saturating_add(1);
    }

    /// A repair has arrived; `has_kept`: the peer had what follows it.
    pub(super) fn on_repair_arrived(&mut self, has_kept: bool) {
        self.contradictions = match has_kept {
            true => self.contradictions.saturating_sub(1),
            false => self.contradictions + u8::from(!self.is_disproved),
        };
        self.is_disproved |= self.contradictions >= MAX_CONTRADICTIONS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_pieces_of_evidence_make_a_belief_and_one_disproof_ends_it_for_good() {
        let mut peer = KeepingPeer::new(false);
        peer.on_evidence();
        assert!(!peer.is_believed());
        peer.on_evidence();
        assert!(peer.is_believed() && !peer.reports());
        [false, false, true, false, false].into_iter().for_each(|it| peer.on_repair_arrived(it));
        assert!(!peer.is_believed());
        for _ in 0..300 {
            peer.on_evidence();
            peer.on_repair_arrived(true);
            peer.on_repair_arrived(false);
        }
        assert!(!peer.is_believed());
    }

    #[test]
    fn rare_losses_in_a_row_disprove_nothing() {
        let mut peer = KeepingPeer::new(true);
        for n in 0..1000 {
            peer.on_repair_arrived(n % 10 != 0);
        }
        assert!(peer.is_believed() && peer.reports());
    }
}
