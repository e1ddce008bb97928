//! Messages for which the peer has posted receives.

use roce_wire::Psn;

/// Messages for which the peer has posted receives.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Credit {
    /// Messages started, modulo 2^24. A READ in several requests counts as several, as the peer
    /// counts it.
    begun: u32,
    /// Messages up to this one have a receive posted; `None` while the peer does not advertise
    /// credits.
    limit: Option<Psn>,
}

impl Credit {
    pub(super) fn on_begun(&mut self) {
        self.begun = self.begun.wrapping_add(1);
    }

    /// A response said that `msn` messages are complete and `count` more receives are posted.
    pub(super) fn update(&mut self, msn: u32, count: Option<u32>) {
        self.limit = count.map(|count| {
            let said = Psn::wrapping(msn.wrapping_add(count));
            // Responses may be reordered, and receives are never taken back.
            self.limit.filter(|known| known.distance_from(said) > 0).unwrap_or(said)
        });
    }

    /// Returns the receives left behind the current message, or, if a message `begins` now, behind
    /// that one; `None` while the peer does not advertise credits.
    pub(super) fn left(&self, begins: bool) -> Option<u32> {
        let begun = Psn::wrapping(self.begun.wrapping_add(u32::from(begins)));
        Some(u32::try_from(self.limit?.distance_from(begun)).unwrap_or(0))
    }

    /// Returns true if there is a receive for the next message.
    pub(super) fn has_room(&self) -> bool {
        let this = Psn::wrapping(self.begun.wrapping_add(1));
        self.limit.is_none_or(|limit| limit.distance_from(this) >= 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_advertises_no_credits_blocks_nothing() {
        let mut credit = Credit::default();
        assert!(credit.has_room());
        credit.update(0, Some(0));
        assert!(!credit.has_room());
        credit.update(0, None);
        assert!(credit.has_room());
    }

    #[test]
    fn credits_count_from_the_messages_completed_across_the_wrap() {
        let mut credit = Credit { begun: (1 << 24) - 2, limit: None };
        credit.update((1 << 24) - 2, Some(3));
        for _ in 0..3 {
            assert!(credit.has_room());
            credit.on_begun();
        }
        assert!(!credit.has_room());
        credit.update((1 << 24) - 2, Some(1));
        assert!(!credit.has_room(), "an old response takes nothing back");
        credit.update(1, Some(1));
        assert!(credit.has_room());
    }
}
