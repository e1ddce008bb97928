//! Times, counted by the nanosecond, without an allocation while they come in.
//!
//! ```
//! use roce_bench::histogram::Histogram;
//! use std::time::Duration;
//!
//! let mut times = Histogram::new();
//! for nanos in 1..=1000 {
//!     times.add(Duration::from_nanos(nanos));
//! }
//! assert_eq!(times.percentile(50.0), Some(500));
//! assert_eq!(times.mean(), Some(500.5));
//! assert_eq!(times.percentile(99.9), Some(999));
//! ```

use std::time::Duration;

use serde_json::{Value, json};

/// How often each time was seen: to the nanosecond below 131 µs, to the microsecond below
/// 131 ms, and only counted beyond.
#[derive(Clone, Debug)]
pub struct Histogram {
    nanos: Vec<u32>,
    micros: Vec<u32>,
    count: u64,
    sum: u128,
    min: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl Histogram {
    /// Has seen nothing.
    pub fn new() -> Self {
        let bins = || vec![0; BINS];
        Self { nanos: bins(), micros: bins(), count: 0, sum: 0, min: u64::MAX, max: 0 }
    }

    /// One more.
    #[inline]
    pub fn add(&mut self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.count += 1;
        self.sum += u128::from(nanos);
        self.min = self.min.min(nanos);
        self.max = self.max.max(nanos);
        if let Some(seen) = self.nanos.get_mut(nanos as usize) {
            *seen = seen.saturating_add(1);
        } else if let Some(seen) = self.micros.get_mut((nanos / 1000) as usize) {
            *seen = seen.saturating_add(1);
        }
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The time in nanoseconds that `percent` of all do not exceed; `None` without any.
    pub fn percentile(&self, percent: f64) -> Option<u64> {
        // A hair less: 99.9 % of a thousand is the 999th, whatever the fraction's last bit says.
        let wanted = (self.count as f64 * percent / 100.0 - 1e-6).ceil().max(1.0) as u64;
        let nanos = self.nanos.iter().zip(0..).map(|(&seen, nanos)| (seen, nanos));
        let micros = self.micros.iter().zip(0..).map(|(&seen, micros)| (seen, micros * 1000));
        let mut so_far = 0;
        let found = nanos.chain(micros).find(|&(seen, _)| {
            so_far += u64::from(seen);
            so_far >= wanted
        });
        // The begin of a microsecond is below what was seen in it.
        let at_least = |nanos: u64| nanos.max(self.min);
        (self.count > 0).then(|| found.map_or(self.max, |(_, nanos)| at_least(nanos)))
    }

    /// Returns the mean in nanoseconds; `None` without any.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64)
    }

    /// `{"min", "mean", "p50", "p90", "p99", "p999", "max"}` in µs, and `"count"`.
    pub fn report(&self) -> Value {
        let micros = |nanos: u64| nanos as f64 / 1000.0;
        let at = |percent| self.percentile(percent).map(micros);
        json!({
            "count": self.count,
            "min": (self.count > 0).then(|| micros(self.min)),
            "mean": self.mean().map(|nanos| nanos / 1000.0),
            "p50": at(50.0),
            "p90": at(90.0),
            "p99": at(99.0),
            "p999": at(99.9),
            "max": (self.count > 0).then(|| micros(self.max)),
        })
    }
}

/// 131 072.
const BINS: usize = 1 << 17;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_has_no_percentile() {
        assert_eq!(Histogram::new().percentile(50.0), None);
        assert_eq!(Histogram::new().mean(), None);
        assert_eq!(Histogram::new().report()["min"], Value::Null);
    }

    #[test]
    fn no_percentile_is_below_the_shortest_time() {
        let mut times = Histogram::new();
        times.add(Duration::from_nanos(19_992_809));
        times.add(Duration::from_nanos(21_000_001));
        assert_eq!(times.percentile(50.0), Some(19_992_809));
        assert_eq!(times.percentile(100.0), Some(21_000_000));
    }

    #[test]
    fn long_times_are_kept_coarsely_and_the_longest_exactly() {
        let mut times = Histogram::new();
        for micros in [1, 200, 5_000_000] {
            times.add(Duration::from_micros(micros) + Duration::from_nanos(7));
        }
        assert_eq!(times.percentile(1.0), Some(1_007));
        assert_eq!(times.percentile(60.0), Some(200_000));
        assert_eq!(times.percentile(100.0), Some(5_000_000_007));
        assert_eq!(times.report()["max"], 5_000_000.007);
    }
}
