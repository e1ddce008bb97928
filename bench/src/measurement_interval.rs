//! The part of a run that counts: the requested time after the warm-up.
//!
//! ```
//! use roce_bench::measurement_interval::Interval;
//!
//! let mut interval = Interval::new(0.05);
//! let mut messages = 0;
//! while interval.ends().is_none() {
//!     messages += 1;
//!     interval.sample(messages);
//! }
//! let (before, after, seconds) = interval.ends().unwrap();
//! assert!(before < after && seconds >= 0.05);
//! ```

use std::time::{Duration, Instant};

use crate::program::WARM_UP;

/// The counts at the start and the end of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Interval<T> {
    first: Option<Instant>,
    from: Option<(Instant, T)>,
    to: Option<(Instant, T)>,
    long: Duration,
}

impl<T: Copy> Interval<T> {
    /// An interval of `seconds` that starts at the first sample [`WARM_UP`] after the very first.
    pub fn new(seconds: f64) -> Self {
        Self { first: None, from: None, to: None, long: Duration::from_secs_f64(seconds) }
    }

    /// Records the count reached by now.
    #[inline]
    pub fn sample(&mut self, counted: T) {
        if self.to.is_some() {
            return;
        }
        let now = Instant::now();
        let first = *self.first.get_or_insert(now);
        match self.from {
            None if now - first >= Duration::from_secs_f64(WARM_UP) => {
                self.from = Some((now, counted));
            }
            Some((from, _)) if now - from >= self.long => self.to = Some((now, counted)),
            _ => {}
        }
    }

    /// Returns the counts at start and end, and the seconds between; `None` until the end.
    pub fn ends(&self) -> Option<(T, T, f64)> {
        let ((from, before), (to, after)) = (self.from?, self.to?);
        Some((before, after, (to - from).as_secs_f64()))
    }
}
