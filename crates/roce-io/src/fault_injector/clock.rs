//! The beginning of a run, which all its processes count from.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Returns a time of `CLOCK_MONOTONIC`, which [`Instant`] reads, too; now without one.
pub(super) fn since(began: Option<Duration>) -> Instant {
    let now = Instant::now();
    let ago = began.and_then(|began| monotonic().checked_sub(began));
    ago.and_then(|ago| now.checked_sub(ago)).unwrap_or(now)
}

/// Returns the time of `CLOCK_MONOTONIC`: the value of [`FaultConfig::began`](crate::FaultConfig::began) for a run that
/// begins now.
pub fn monotonic() -> Duration {
    // It is never negative.
    Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default()
}
