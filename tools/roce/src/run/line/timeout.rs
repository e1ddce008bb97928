//! The longest time of a run.

use std::fmt::{self, Display, Formatter};
use std::str::FromStr;
use std::time::Duration;

/// A time as timeout(1) takes it: seconds, or a number with the suffix s, m, h or d.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Timeout {
    pub(crate) duration: Duration,
    /// The text that was given.
    text: String,
}

impl FromStr for Timeout {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (digits, unit) = match text.char_indices().next_back() {
            Some((at, 's')) => (&text[..at], 1.0),
            Some((at, 'm')) => (&text[..at], 60.0),
            Some((at, 'h')) => (&text[..at], 3600.0),
            Some((at, 'd')) => (&text[..at], 86400.0),
            _ => (text, 1.0),
        };
        let seconds = digits.parse::<f64>().ok().map(|number| number * unit);
        match seconds {
            Some(seconds) if seconds > 0.0 && seconds <= MAX_SECONDS => {
                Ok(Self { duration: Duration::from_secs_f64(seconds), text: text.to_owned() })
            }
            _ => Err("use a time above 0, such as 90, 0.5s, 10m or 2h".to_owned()),
        }
    }
}

impl Display for Timeout {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        // A number alone is one of seconds.
        let unit = if self.text.ends_with(|last: char| last.is_ascii_digit()) { "s" } else { "" };
        write!(out, "{}{unit}", self.text)
    }
}

/// About 31 years.
const MAX_SECONDS: f64 = 1e9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_the_suffixes_of_timeout() {
        for (text, milliseconds, shown) in [
            ("90", 90_000, "90s"),
            ("0.5s", 500, "0.5s"),
            ("2m", 120_000, "2m"),
            ("1.5h", 5_400_000, "1.5h"),
            ("1d", 86_400_000, "1d"),
        ] {
            let timeout: Timeout = text.parse().expect(text);
            assert_eq!(timeout.duration, Duration::from_millis(milliseconds), "{text}");
            assert_eq!(timeout.to_string(), shown);
        }
    }

    #[test]
    fn what_is_no_time_above_zero_is_refused() {
        for text in ["", "s", "0", "-1", "1x", "NaN", "inf", "1e300", "infs"] {
            assert!(text.parse::<Timeout>().is_err(), "{text}");
        }
    }
}
