//! Whether the peer keeps packets behind a missing one, or goes back N.
//!
//! The two ends agree on it out of band, or the requester infers it from what no peer that goes back N can
//! say: see [`LossRecovery::note_evidence`](super::loss_recovery::LossRecovery::note_evidence).

/// What is known of how the peer treats packets behind a missing one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KeepingPeer {
    is_agreed: bool,
    evidence: u8,
    /// Repairs behind which the next packet was missing too, less those behind which it was not.
    contradictions: u8,
    is_disproved: bool,
}

/// How often the peer must have acknowledged what only packets that it keeps explain. Once may be a
/// coincidence of a late packet and copies that the network made.
const MIN_EVIDENCE: u8 = 2;
/// Contradictions that end the belief for good. Losses in a row make some too.
const MAX_CONTRADICTIONS: u8 = 3;

impl KeepingPeer {
    /// A peer of which nothing is known, or that keeps packets and reports gaps as `is_agreed` says.
    pub(crate) fn new(is_agreed: bool) -> Self {
        Self { is_agreed, ..Self::default() }
    }

    /// Returns true if only missing packets are to be sent again.
    pub(crate) const fn is_believed(self) -> bool {
        (self.is_agreed || self.evidence >= MIN_EVIDENCE) && !self.is_disproved
    }

    /// Returns true if the peer reports gaps.
    pub(crate) const fn reports(self) -> bool {
        self.is_agreed && !self.is_disproved
    }

    pub(crate) fn on_evidence(&mut self) {
        self.evidence = self.evidence.saturating_add(1);
    }

    /// A repair has arrived; `has_kept`: the peer had what follows it.
    pub(crate) fn on_repair_arrived(&mut self, has_kept: bool) {
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
