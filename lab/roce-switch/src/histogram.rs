//! Percentiles of many values in bounded memory.

use crate::QueueSummary;

/// Counts of values by size. A percentile is exact below 64, and within 3 % above.
#[derive(Clone, Debug, Default)]
pub(crate) struct Histogram {
    counts: Vec<u64>,
    samples: u64,
    sum: u128,
    max: u64,
}

impl Histogram {
    pub(crate) fn add(&mut self, value: u64) {
        let bucket = bucket_of(value);
        if bucket >= self.counts.len() {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += 1;
        self.samples += 1;
        self.sum += u128::from(value);
        self.max = self.max.max(value);
    }

    /// Returns a value that this share of all values does not exceed.
    pub(crate) fn percentile(&self, share: f64) -> u64 {
        let rank = (share * self.samples as f64).ceil().max(1.0) as u64;
        let mut below = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            below += count;
            if below >= rank {
                return largest_of(bucket).min(self.max);
            }
        }
        self.max
    }

    pub(crate) fn summary(&self) -> QueueSummary {
        let mean = if self.samples == 0 { 0.0 } else { self.sum as f64 / self.samples as f64 };
        let (p50, p99) = (self.percentile(0.5), self.percentile(0.99));
        QueueSummary { samples: self.samples, mean, p50, p99, max: self.max }
    }
}

/// Buckets of each power of two from 64 on.
const PER_OCTAVE: u64 = 32;
/// Values below have a bucket each.
const EXACT: u64 = 2 * PER_OCTAVE;
const PER_OCTAVE_BITS: u32 = PER_OCTAVE.ilog2();

fn bucket_of(value: u64) -> usize {
    if value < EXACT {
        return value as usize;
    }
    let shift = value.ilog2() - PER_OCTAVE_BITS;
    let octave = u64::from(shift) - 1;
    (EXACT + octave * PER_OCTAVE + (value >> shift) - PER_OCTAVE) as usize
}

fn largest_of(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < EXACT {
        return bucket;
    }
    let shift = (bucket - EXACT) / PER_OCTAVE + 1;
    let step = (bucket - EXACT) % PER_OCTAVE + PER_OCTAVE;
    (step << shift) + ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_bucket_holds_its_values_within_3_percent(value: u64) {
            let largest = largest_of(bucket_of(value));
            prop_assert!(largest >= value);
            prop_assert!(largest - value <= value / 32);
            prop_assert!(bucket_of(u64::MAX) < 2000);
        }

        #[test]
        fn a_percentile_is_that_of_the_sorted_values(
            mut values in proptest::collection::vec(0u64..10_000_000, 1..300), share in 0.0..1.0f64,
        ) {
            let mut histogram = Histogram::default();
            values.iter().for_each(|value| histogram.add(*value));
            values.sort_unstable();
            let rank = ((share * values.len() as f64).ceil() as usize).max(1);
            let (exact, found) = (values[rank - 1], histogram.percentile(share));
            prop_assert!(found >= exact && found - exact <= exact / 32, "{} for {}", found, exact);
            prop_assert_eq!(histogram.summary().max, values[values.len() - 1]);
        }
    }
}
