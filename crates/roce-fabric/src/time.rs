//! Virtual time: a number that only the network moves.

use std::ops::{Add, Sub};
use std::time::Duration;

/// A moment of virtual time, in nanoseconds since the network was made.
///
/// ```
/// use roce_fabric::Time;
/// use std::time::Duration;
///
/// let later = Time::START + Duration::from_micros(3);
/// assert_eq!(later.as_nanos(), 3_000);
/// assert_eq!(later - Time::START, Duration::from_micros(3));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// The moment a network is made.
    pub const START: Self = Self(0);

    /// The moment `nanos` nanoseconds after [`START`](Self::START).
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since [`START`](Self::START).
    pub const fn as_nanos(self) -> u64 {
        self.0
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    /// Saturates after 584 years.
    fn add(self, span: Duration) -> Self {
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos))
    }
}

impl Sub for Time {
    type Output = Duration;

    /// The span from `earlier` to `self`; zero when `earlier` is the later one.
    fn sub(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_saturates_instead_of_wrapping() {
        let last = Time::from_nanos(u64::MAX);
        assert_eq!(last + Duration::MAX, last);
        assert_eq!(Time::START - last, Duration::ZERO);
    }
}
