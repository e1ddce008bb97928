//! Times, counts and rates, and their limits.

use std::time::Duration;

/// Most packets that one step sends.
pub const MAX_COUNT: u32 = 10_000_000;
/// Highest rate, in packets per second.
pub const MAX_RATE: u32 = 1_000_000;
/// Longest time that a step waits.
pub const MAX_TIME: Duration = Duration::from_secs(3600);

/// Returns a time such as `200ms`, `50us`, `1.5s` or `2m`, at most [`MAX_TIME`].
///
/// # Errors
/// What is wrong.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    let units = [("ms", 1e-3), ("us", 1e-6), ("µs", 1e-6), ("s", 1.0), ("m", 60.0)];
    let found = units.iter().find_map(|(unit, scale)| Some((text.strip_suffix(unit)?, scale)));
    let seconds = found.and_then(|(digits, scale)| {
        let is_number = digits.bytes().all(|it| it.is_ascii_digit() || it == b'.');
        digits.parse::<f64>().ok().filter(|_| is_number).map(|number| number * scale)
    });
    match seconds {
        Some(seconds) if seconds <= MAX_TIME.as_secs_f64() => Ok(Duration::from_secs_f64(seconds)),
        _ => {
            Err(format!("{text:?} is no time; write for example 200ms, 50us or 1.5s, at most 60m"))
        }
    }
}

/// Returns a number of packets, 1 to [`MAX_COUNT`].
///
/// # Errors
/// What is wrong.
pub fn parse_count(text: &str) -> Result<u32, String> {
    within(text, MAX_COUNT, "number of packets")
}

/// Returns a rate, 1 to [`MAX_RATE`] packets per second.
///
/// # Errors
/// What is wrong.
pub fn parse_rate(text: &str) -> Result<u32, String> {
    within(text, MAX_RATE, "rate in packets per second")
}

fn within(text: &str, max: u32, what: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(number) if (1..=max).contains(&number) => Ok(number),
        _ => Err(format!("{text:?} is no {what}; it is 1 to {max}")),
    }
}
