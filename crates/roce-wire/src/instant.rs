//! A moment on the caller's clock.

use core::ops::{Add, AddAssign, Sub};
use core::time::Duration;

/// A moment on the caller's monotonic clock, in nanoseconds since an arbitrary start.
///
/// What speaks the protocol, and what simulates networks, never reads a clock: time is an argument, and tests invent
/// theirs.
///
/// ```
/// use std::time::Duration;
/// use roce_wire::Instant;
///
/// let start = Instant::from_nanos(5);
/// let later = start + Duration::from_micros(1);
/// assert_eq!(later - start, Duration::from_micros(1));
/// assert_eq!(start.saturating_since(later), Duration::ZERO);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The arbitrary start.
    pub const START: Self = Self(0);

    /// The moment `nanos` nanoseconds after the arbitrary start.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the arbitrary start.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// How long after `earlier` this is; zero if it is not later.
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    /// Saturates at the end of time, 584 years after the start.
    fn add(self, span: Duration) -> Self {
        let whole = span.as_secs().saturating_mul(1_000_000_000);
        let nanos = whole.saturating_add(span.subsec_nanos().into());
        Self(self.0.saturating_add(nanos))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, span: Duration) {
        *self = *self + span;
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;

    /// Saturates at the start.
    fn sub(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub for Instant {
    type Output = Duration;

    /// As [`saturating_since`](Self::saturating_since).
    fn sub(self, earlier: Self) -> Duration {
        self.saturating_since(earlier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_saturates_at_its_end() {
        let last = Instant::from_nanos(u64::MAX);
        assert_eq!(last + Duration::from_secs(1), last);
        assert_eq!(Instant::from_nanos(1) + Duration::MAX, last);
        assert_eq!(Instant::START - last, Duration::ZERO);
        assert_eq!(Instant::from_nanos(1) - Duration::from_nanos(2), Instant::START);
    }
}
