//! Static rate: when the next train may leave.

use core::time::Duration;

use roce_wire::PathMtu;

use crate::Instant;

/// A train lasts no longer than this at the static rate, unless it is one packet.
const MAX_TRAIN: Duration = Duration::from_millis(1);

/// Spaces the trains of a queue pair in time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pacer {
    /// The next train leaves no earlier.
    next_at: Instant,
}

impl Pacer {
    pub(super) fn may_send(&self, time: Instant) -> bool {
        time >= self.next_at
    }

    pub(super) const fn next_at(&self) -> Instant {
        self.next_at
    }

    /// Packets of the next train, at least 1.
    pub(super) fn max_packets(max_rate: Option<u64>, mtu: PathMtu) -> u64 {
        let Some(rate) = max_rate else { return u64::MAX };
        let bytes = rate / (1_000 / MAX_TRAIN.as_millis() as u64);
        (bytes / mtu.bytes() as u64).max(1)
    }

    /// A train of so many bytes leaves at `time`.
    pub(super) fn on_sent(&mut self, max_rate: Option<u64>, bytes: usize, time: Instant) {
        let Some(rate) = max_rate else { return };
        // Rounded up, or short trains would leave faster.
        let nanos = (bytes as u128 * 1_000_000_000).div_ceil(u128::from(rate.max(1)));
        // At 1 byte per second a train of 64 KiB takes 18 hours.
        let lasts = Duration::from_nanos(nanos.try_into().unwrap_or(u64::MAX));
        self.next_at = self.next_at.max(time) + lasts;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trains_follow_each_other_at_the_static_rate() {
        let (rate, start) = (Some(1_000_000), Instant::from_nanos(0));
        let mut pacer = Pacer::default();
        assert!(pacer.may_send(start));
        pacer.on_sent(rate, 1_000, start);
        assert_eq!(pacer.next_at(), start + Duration::from_millis(1));
        assert!(!pacer.may_send(start) && pacer.may_send(pacer.next_at()));
        let late = start + Duration::from_millis(5);
        pacer.on_sent(rate, 500, late);
        assert_eq!(pacer.next_at(), late + Duration::from_micros(500), "time not used is lost");
    }

    #[test]
    fn short_trains_leave_no_faster_than_the_static_rate() {
        let mut pacer = Pacer::default();
        for _ in 0..1000 {
            pacer.on_sent(Some(9_000_000_000), 33, pacer.next_at());
        }
        assert!(pacer.next_at().as_nanos() >= 33_000 / 9);
    }

    #[test]
    fn a_train_lasts_a_millisecond_or_is_one_packet() {
        assert_eq!(Pacer::max_packets(Some(1), PathMtu::B4096), 1);
        assert_eq!(Pacer::max_packets(Some(8 * 4_096_000), PathMtu::B4096), 8);
        assert_eq!(Pacer::max_packets(None, PathMtu::B4096), u64::MAX);
    }
}
