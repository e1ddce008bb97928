//! Losses that do not shrink the window.

/// Packets that have to arrive for each loss that the window ignores: 2 % may be lost.
const PACKETS_PER_LOSS: u32 = 50;
/// Losses in a row that the window ignores.
const BURST: u32 = 8;

/// A leaky bucket of lost packets that are repaired alone.
///
/// Where a loss costs one packet, a window that halves with each costs far more than the losses do:
/// at 1 % it stays at a dozen packets. So rare losses, such as those of a bad link, are only
/// repaired; more show a queue that overflows. BBR ignores 2 % likewise. The requester asks it only
/// where packets behind a loss are known to be kept, no queue shows in the round trip, and
/// congestion control has another sign than losses.
///
/// Source: draft-ietf-ccwg-bbr (`BBR.LossThresh`).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LossAllowance {
    /// Packets that have to arrive until it is unused.
    used: u32,
    /// The sequence number up to which arrived packets are counted: its low bits.
    counted_to: u32,
}

impl LossAllowance {
    /// Packets before `arrived_to` have arrived, and `lost` ones behind are lost. Returns true if the
    /// window ignores that.
    pub(super) fn ignores(&mut self, lost: u64, arrived_to: u64) -> bool {
        let arrived = (arrived_to as u32).wrapping_sub(self.counted_to);
        self.counted_to = arrived_to as u32;
        let lost = lost.min(u64::from(BURST) + 1) as u32;
        let used = self.used.saturating_sub(arrived) + lost * PACKETS_PER_LOSS;
        self.used = used.min(BURST * PACKETS_PER_LOSS);
        used <= BURST * PACKETS_PER_LOSS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_percent_of_single_losses_are_ignored_and_more_are_not() {
        let count = |distance: u64| {
            let mut allowance = LossAllowance::default();
            (1..=100).filter(|n| !allowance.ignores(1, n * distance)).count()
        };
        assert_eq!((count(100), count(50)), (0, 0));
        // Those after the first 40, with which the bucket becomes full, and the first 10.
        assert_eq!((count(40), count(10)), (64, 91));
    }

    #[test]
    fn a_burst_shrinks_the_window_and_a_rest_forgives_it() {
        let mut allowance = LossAllowance::default();
        assert!(!allowance.ignores(100, 10));
        assert!(!allowance.ignores(1, 20));
        assert!(allowance.ignores(1, 70));
        assert!(!allowance.ignores(u64::MAX, 70));
    }
}
