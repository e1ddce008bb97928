//! Times and rates in lesson files.

use std::fmt;
use std::time::Duration;

use serde::Deserialize;

/// A duration: `500ns`, `2us`, `1.5ms`, `1s`.
///
/// ```
/// use roce_lab::Span;
/// use std::time::Duration;
/// assert_eq!("2us".parse::<Span>().unwrap().duration(), Duration::from_micros(2));
/// assert!("2 years".parse::<Span>().is_err());
/// ```
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(try_from = "String")]
pub struct Span(Duration);

/// A rate in bits per second: `100G`, `2.5G`, `400M`; K, M and G are powers of 1000.
///
/// ```
/// use roce_lab::Rate;
/// assert_eq!("100G".parse::<Rate>().unwrap().bits_per_sec(), 100_000_000_000);
/// assert!("0".parse::<Rate>().is_err());
/// ```
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(try_from = "String")]
pub struct Rate(u64);

impl Span {
    /// Returns a span of `nanos` nanoseconds.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(Duration::from_nanos(nanos))
    }

    /// Returns the duration.
    pub const fn duration(self) -> Duration {
        self.0
    }
}

impl Rate {
    /// Returns a rate, at least 1 bit per second.
    pub(super) const fn from_bits_per_sec(rate: u64) -> Self {
        Self(if rate == 0 { 1 } else { rate })
    }

    /// Returns the rate in bits per second, at least 1.
    pub const fn bits_per_sec(self) -> u64 {
        self.0
    }
}

impl std::str::FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let help = || format!("{text:?} is not a time; write for example 500ns, 2us, 1.5ms or 1s");
        let units = [("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("ms", 1e6), ("s", 1e9)];
        let (digits, scale) = units
            .iter()
            .find_map(|(unit, scale)| Some((text.strip_suffix(unit)?, scale)))
            .ok_or_else(help)?;
        let number: f64 = digits.trim().parse().map_err(|_| help())?;
        let nanos = number * scale;
        // No simulation lasts an hour.
        if (0.0..=3.6e12).contains(&nanos) {
            Ok(Self::from_nanos(nanos as u64))
        } else {
            Err(help())
        }
    }
}

impl std::str::FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let help = || {
            format!("{text:?} is not a rate; write for example 100G, 2.5G or 400M bits per second")
        };
        let units = [("G", 1e9), ("M", 1e6), ("K", 1e3), ("", 1.0)];
        let (digits, scale) = units
            .iter()
            .find_map(|(unit, scale)| Some((text.strip_suffix(unit)?, scale)))
            .ok_or_else(help)?;
        let number: f64 = digits.trim().parse().map_err(|_| help())?;
        let rate = number * scale;
        if (1.0..=1e15).contains(&rate) { Ok(Self(rate as u64)) } else { Err(help()) }
    }
}

impl TryFrom<String> for Span {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl TryFrom<String> for Rate {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            rate if rate % 1_000_000_000 == 0 => write!(f, "{} Gbit/s", rate / 1_000_000_000),
            rate if rate % 1_000_000 == 0 => write!(f, "{} Mbit/s", rate / 1_000_000),
            rate => write!(f, "{rate} bit/s"),
        }
    }
}
