//! RNR timer.

use core::time::Duration;

/// Time before the retry of a request, encoded in five bits of an RNR NAK. Code 0 is the longest
/// time; the others are in order.
///
/// ```
/// use roce_wire::RnrTimer;
/// assert_eq!(RnrTimer::DEFAULT.duration().as_micros(), 640);
/// assert_eq!(RnrTimer::new(32), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RnrTimer(u8);

impl RnrTimer {
    /// Code 12, 0.64 ms, as `ibv_rc_pingpong` uses.
    pub const DEFAULT: Self = Self(12);

    /// Creates one; `None` if `code` needs more than 5 bits.
    pub const fn new(code: u8) -> Option<Self> {
        if code < 32 { Some(Self(code)) } else { None }
    }

    /// Creates one from the low five bits of an AETH syndrome.
    pub(crate) const fn from_low_bits(byte: u8) -> Self {
        Self(byte & 0x1f)
    }

    /// Returns the shortest timer of at least `wait`; the longest, 655.36 ms, if none is.
    pub fn at_least(wait: Duration) -> Self {
        (1..32).map(Self).find(|timer| timer.duration() >= wait).unwrap_or(Self(0))
    }

    /// Returns the code, 0 ..= 31.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// Returns the duration, 10 µs ..= 655.36 ms.
    pub const fn duration(self) -> Duration {
        Duration::from_micros(10 * TENS_OF_MICROS[self.0 as usize] as u64)
    }
}

/// Durations by code, in units of 10 µs.
//= rule wire-rnr-timer: InfiniBand 9.7.5; rxe_comp.c: rnrnak_usec
//# Durations of the 32 codes of an RNR timer, 10 µs to 655.36 ms.
const TENS_OF_MICROS: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

#[cfg(test)]
mod tests {
    use super::*;

    //= test wire-rnr-timer
    #[test]
    fn every_code_but_zero_waits_longer_than_the_one_before() {
        for code in 2..32 {
            assert!(RnrTimer(code).duration() > RnrTimer(code - 1).duration(), "code {code}");
        }
        assert_eq!(RnrTimer(0).duration(), Duration::from_micros(655_360));
        assert_eq!(RnrTimer(1).duration(), Duration::from_micros(10));
        assert_eq!(RnrTimer(31).duration(), Duration::from_micros(491_520));
    }

    //= test wire-rnr-timer
    #[test]
    fn from_code_4_on_a_code_waits_twice_as_long_as_the_one_two_before() {
        assert_eq!(RnrTimer(2).duration(), Duration::from_micros(20));
        assert_eq!(RnrTimer(3).duration(), Duration::from_micros(30));
        for code in 4..32 {
            let before = RnrTimer(code - 2).duration();
            assert_eq!(RnrTimer(code).duration(), 2 * before, "code {code}");
        }
    }

    #[test]
    fn every_code_is_the_shortest_of_at_least_its_own_duration() {
        for code in 0..32 {
            assert_eq!(RnrTimer::at_least(RnrTimer(code).duration()), RnrTimer(code));
        }
        assert_eq!(RnrTimer::at_least(Duration::from_secs(10)), RnrTimer(0));
        assert_eq!(RnrTimer::at_least(Duration::ZERO), RnrTimer(1));
    }

    #[test]
    fn a_code_of_more_than_five_bits_is_refused() {
        assert_eq!(RnrTimer::new(31), Some(RnrTimer(31)));
        assert_eq!(RnrTimer::new(32), None);
    }
}
