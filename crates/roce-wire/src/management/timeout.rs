//! Timeouts of connection management.

use core::time::Duration;

/// A time of 4.096 µs · 2^code, as connection management writes it.
///
/// ```
/// use roce_wire::management::CmTimeout;
/// assert_eq!(CmTimeout::from_code(20).duration().as_millis(), 4294);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CmTimeout(u8);

impl CmTimeout {
    /// The longest time, about 2.4 hours.
    pub const MAX: Self = Self(31);

    /// Returns the time with the code `code`; codes above 31 count as 31.
    pub const fn from_code(code: u8) -> Self {
        if code > Self::MAX.0 { Self::MAX } else { Self(code) }
    }

    /// Returns the code, 0 ..= 31.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// Returns the time, 4.096 µs to 2.4 hours.
    pub const fn duration(self) -> Duration {
        Duration::from_nanos(4096 << self.0)
    }
}
