//! The round trip time of a flow.

use std::time::Duration;

/// Mean and deviation of a flow's RTT, smoothed as by TCP (RFC 6298).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RoundTrip {
    smoothed: Option<Duration>,
    deviation: Duration,
}

impl RoundTrip {
    pub(super) fn sample(&mut self, rtt: Duration) {
        let Some(smoothed) = self.smoothed else {
            (self.smoothed, self.deviation) = (Some(rtt), rtt / 2);
            return;
        };
        self.deviation = (self.deviation * 3 + smoothed.abs_diff(rtt)) / 4;
        self.smoothed = Some((smoothed * 7 + rtt) / 8);
    }

    /// Returns the time after which an ACK is late, once there is a sample.
    pub(super) fn timeout(&self) -> Option<Duration> {
        self.smoothed.map(|smoothed| smoothed + self.deviation * 4)
    }
}

/// Bounds of the time after which a flow sends again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeouts {
    /// Until there is a sample.
    pub(super) first: Duration,
    /// At least.
    pub(super) least: Duration,
}
