//! Histogram of durations in fixed memory.

use std::time::Duration;

/// Counts of durations in classes of 1/16 of a power of two, so quantiles are accurate to three
/// per cent. Minimum and maximum are exact.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    counts: Box<[u32; CLASSES]>,
    total: u64,
    min: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: Box::new([0; CLASSES]), total: 0, min: u64::MAX, max: 0 }
    }
}

impl Histogram {
    pub(crate) fn add(&mut self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.min = self.min.min(nanos);
        self.max = self.max.max(nanos);
        self.total += 1;
        let count = &mut self.counts[class_of(nanos)];
        *count = count.saturating_add(1);
    }

    pub(crate) const fn total(&self) -> u64 {
        self.total
    }

    pub(crate) const fn min(&self) -> Duration {
        Duration::from_nanos(self.min)
    }

    /// Returns a quantile in thousandths.
    pub(crate) fn quantile(&self, thousandths: u64) -> Duration {
        let rank = (self.total * thousandths).div_ceil(1000).max(1);
        let mut seen = 0;
        for (class, count) in self.counts.iter().enumerate() {
            seen += u64::from(*count);
            if seen >= rank {
                return Duration::from_nanos(middle_of(class).clamp(self.min, self.max));
            }
        }
        self.min()
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.total += other.total;
        for (count, more) in self.counts.iter_mut().zip(other.counts.iter()) {
            *count = count.saturating_add(*more);
        }
    }
}

fn class_of(nanos: u64) -> usize {
    if nanos < 16 {
        return nanos as usize;
    }
    let power = nanos.ilog2() as usize;
    let within = (nanos >> (power - 4)) as usize & 0xf;
    ((power - 3) * 16 + within).min(CLASSES - 1)
}

fn middle_of(class: usize) -> u64 {
    if class < 16 {
        return class as u64;
    }
    let (power, within) = (class / 16 + 3, class as u64 % 16);
    let width = 1u64 << (power - 4);
    (16 + within) * width + width / 2
}

/// Number of classes: up to 2^40 ns, 18 minutes.
const CLASSES: usize = 37 * 16;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_class_is_accurate_to_three_per_cent(nanos in 0u64..1 << 40) {
            let found = middle_of(class_of(nanos));
            prop_assert!(found.abs_diff(nanos) as f64 <= 0.032 * nanos as f64 + 0.5, "{found}");
        }
    }

    #[test]
    fn median_and_99th_percentile_match_the_durations_added() {
        let mut histogram = Histogram::default();
        for micros in 1..=1000 {
            histogram.add(Duration::from_micros(micros));
        }
        let near = |found: Duration, micros: f64| {
            assert!((found.as_secs_f64() * 1e6 / micros - 1.0).abs() < 0.035, "{found:?}");
        };
        assert_eq!(histogram.min(), Duration::from_micros(1));
        near(histogram.quantile(500), 500.0);
        near(histogram.quantile(990), 990.0);
    }
}
