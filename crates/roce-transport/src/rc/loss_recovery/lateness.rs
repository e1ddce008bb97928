//! How late packets arrive that others have overtaken.

use core::time::Duration;

use super::rtt::RttEstimator;

/// How late packets were that the peer reported missing, in nanoseconds: a repair waits for as long.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lateness(u32);

/// Lateness before any packet was late, in nanoseconds, where the first report names many gaps:
/// they may all close by themselves.
const INITIAL_LATENESS: u32 = 100_000;
/// Each missing packet shortens the wait for late ones by this part.
const LATENESS_DECAY: u32 = 16;

impl Lateness {
    /// That of a peer that has agreed to report gaps, or not.
    pub(super) fn new(reports: bool, ack_timeout: Option<Duration>) -> Self {
        // A repair that waits must leave before the ACK timeout costs a retry.
        let nanos = ack_timeout.map_or(u128::MAX, |it| it.as_nanos() / 8);
        let longest = u32::try_from(nanos).unwrap_or(u32::MAX).min(INITIAL_LATENESS);
        Self(if reports { longest } else { 0 })
    }

    /// Nanoseconds, without limits.
    pub(super) fn nanos(self) -> u64 {
        self.0.into()
    }

    /// How late packets are expected to be, in nanoseconds: no later than a probe timeout.
    pub(super) fn expected_nanos(self, rtt: &RttEstimator) -> u64 {
        self.nanos().clamp(rtt.smoothed_nanos() / 8, rtt.probe_timeout_nanos())
    }

    /// A packet was so many nanoseconds late.
    pub(super) fn on_late(&mut self, nanos: u64) {
        // Others may be later still.
        let late = nanos.saturating_mul(2);
        self.0 = self.0.max(u32::try_from(late).unwrap_or(u32::MAX));
    }

    /// A packet was taken for lost that was late.
    pub(super) fn on_spurious_repair(&mut self, rtt: &RttEstimator) {
        let doubled = (2 * self.expected_nanos(rtt)).min(rtt.probe_timeout_nanos());
        self.0 = u32::try_from(doubled).unwrap_or(u32::MAX);
    }

    /// A packet is taken for lost.
    pub(super) fn on_loss(&mut self) {
        self.0 -= self.0 / LATENESS_DECAY;
    }
}
