//! Capture timestamps.

use std::fmt;
use std::time::Duration;

/// Nanoseconds since 1970-01-01 00:00 UTC.
///
/// ```
/// use roce_dissect::Timestamp;
/// let at = Timestamp(1_700_000_000_000_001_500);
/// assert_eq!(at.to_string(), "1700000000.000001500");
/// assert_eq!(Timestamp(1_700_000_000_000_002_500).since(at).as_micros(), 1);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// Returns the time since `earlier`; zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}
