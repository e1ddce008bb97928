//! The interval that a median lies in.

use super::statistics::sorted_with_median;

/// The median of several measurements, and a nonparametric confidence interval of it.
///
/// The interval reaches from the k-th smallest measurement to the k-th largest. It misses the true median
/// only if fewer than k of n independent measurements lie on one side of it, whatever their
/// distribution: with a probability of 2 · P(Binomial(n, 1/2) < k). k is the largest whose confidence is
/// [`MIN_CONFIDENCE`]; up to seven measurements that is the interval from the least to the most.
///
/// ```
/// use roce_bench::report::Interval;
/// let interval = Interval::of([1.0, 5.0, 2.0, 4.0, 3.0]).unwrap();
/// assert_eq!((interval.low, interval.median, interval.high), (1.0, 3.0, 5.0));
/// assert_eq!(interval.confidence, 0.9375);
/// assert!(interval.is_confident());
/// // Too few: least and most, with less confidence.
/// assert!(!Interval::of([1.0, 2.0, 3.0, 4.0]).unwrap().is_confident());
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The middle one; of an even number the mean of the two in the middle.
    pub median: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// The upper end of the interval.
    pub high: f64,
    /// How many measurements there were.
    pub count: usize,
    /// The probability that such an interval holds the true median.
    pub confidence: f64,
}

impl Interval {
    /// Returns the interval of some measurements; `None` when there is none, or one that is no finite
    /// number.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let (sorted, median) = sorted_with_median(values)?;
        let count = sorted.len();
        let (mut left_out, mut confidence) = (0, confidence(count, 1));
        for k in 2..=count / 2 {
            let narrower = self::confidence(count, k);
            if narrower < MIN_CONFIDENCE {
                break;
            }
            (left_out, confidence) = (k - 1, narrower);
        }
        let (low, high) = (sorted[left_out], sorted[count - 1 - left_out]);
        Some(Self { median, low, high, count, confidence })
    }

    /// Returns true if the measurements are enough for [`MIN_CONFIDENCE`]: five or more.
    pub fn is_confident(&self) -> bool {
        self.confidence >= MIN_CONFIDENCE
    }
}

/// The probability that the median lies between the k-th smallest and the k-th largest of `count`
/// measurements.
fn confidence(count: usize, k: usize) -> f64 {
    // Binomial(count, 1/2): the probability of 0, of 1, and so on.
    let mut probability = 0.5_f64.powi(i32::try_from(count).unwrap_or(i32::MAX));
    let mut below = 0.0;
    for i in 0..k {
        below += probability;
        probability *= (count - i) as f64 / (i + 1) as f64;
    }
    (1.0 - 2.0 * below).max(0.0)
}

/// The least confidence that decides about a target.
pub const MIN_CONFIDENCE: f64 = 0.9;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_confidence_is_that_of_the_sign_test() {
        // 1 - 2 · (1/2)^n for least and most; the others from a table of the binomial distribution.
        for (count, k, expected) in [
            (1, 1, 0.0),
            (4, 1, 0.875),
            (5, 1, 0.9375),
            (7, 2, 0.875),
            (8, 2, 0.9297),
            (11, 3, 0.9346),
        ] {
            let found = confidence(count, k);
            assert!((found - expected).abs() < 5e-5, "{count} {k}: {found}");
        }
    }

    #[test]
    fn more_measurements_leave_out_more_at_the_ends() {
        let ends = |count: u32| {
            let interval = Interval::of((1..=count).map(f64::from)).unwrap();
            (interval.low, interval.high)
        };
        assert_eq!([5, 7, 8, 9].map(ends), [(1.0, 5.0), (1.0, 7.0), (2.0, 7.0), (2.0, 8.0)]);
        assert_eq!(ends(11), (3.0, 9.0));
        assert_eq!(ends(101), (42.0, 60.0));
    }

    #[test]
    fn fewer_than_five_measurements_decide_nothing() {
        let is_confident =
            |count: u32| Interval::of((0..count).map(f64::from)).map(|it| it.is_confident());
        assert_eq!([0, 1, 4, 5].map(is_confident), [None, Some(false), Some(false), Some(true)]);
        assert_eq!(Interval::of([1.0, f64::NAN]), None);
    }

    proptest! {
        #[test]
        fn the_interval_holds_the_median_of_its_measurements(
            values in prop::collection::vec(-1e9f64..1e9, 1..60),
        ) {
            let interval = Interval::of(values.clone()).unwrap();
            prop_assert!(interval.low <= interval.median && interval.median <= interval.high);
            prop_assert!(values.len() < 5 || interval.is_confident());
            let outside = values.iter().filter(|it| **it < interval.low || **it > interval.high);
            prop_assert!(values.len() > 7 || outside.count() == 0);
        }
    }
}
