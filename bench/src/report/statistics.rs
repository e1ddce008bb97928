//! Medians and spreads: what the table shows of each candidate.

/// Several measurements of one thing, summed up.
///
/// ```
/// use roce_bench::report::Summary;
/// let summary = Summary::of([3.0, 1.0, 2.0]).unwrap();
/// assert_eq!((summary.low, summary.median, summary.high, summary.count), (1.0, 2.0, 3.0, 3));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// The middle one; of an even number the mean of the two in the middle.
    pub median: f64,
    /// The lowest.
    pub low: f64,
    /// The highest.
    pub high: f64,
    /// How many there were.
    pub count: usize,
}

impl Summary {
    /// Sums up; `None` when there is nothing, or something that is no finite number.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let (sorted, median) = sorted_with_median(values)?;
        let (low, high) = (*sorted.first()?, *sorted.last()?);
        Some(Self { median, low, high, count: sorted.len() })
    }
}

/// Returns the values in order, and their median; `None` when there is none, or one that is no finite number.
pub(super) fn sorted_with_median(values: impl IntoIterator<Item = f64>) -> Option<(Vec<f64>, f64)> {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    if sorted.is_empty() || sorted.iter().any(|value| !value.is_finite()) {
        return None;
    }
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len();
    let median = f64::midpoint(sorted[(count - 1) / 2], sorted[count / 2]);
    Some((sorted, median))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Summary;

    #[test]
    fn the_median_of_an_even_number_lies_between_the_two_in_the_middle() {
        let summary = Summary::of([4.0, 1.0, 2.0, 9.0]).unwrap();
        assert_eq!((summary.median, summary.low, summary.high), (3.0, 1.0, 9.0));
    }

    #[test]
    fn nothing_and_what_is_no_number_have_no_summary() {
        assert_eq!(Summary::of([]), None);
        assert_eq!(Summary::of([1.0, f64::NAN]), None);
        assert_eq!(Summary::of([f64::INFINITY]), None);
    }

    proptest! {
        #[test]
        fn the_median_is_within_the_spread_and_order_does_not_matter(
            values in prop::collection::vec(-1e9f64..1e9, 1..20),
        ) {
            let summary = Summary::of(values.clone()).unwrap();
            prop_assert!(summary.low <= summary.median && summary.median <= summary.high);
            let below = values.iter().filter(|value| **value < summary.median).count();
            let above = values.iter().filter(|value| **value > summary.median).count();
            prop_assert!(2 * below <= values.len() && 2 * above <= values.len());
            prop_assert_eq!(Summary::of(values.into_iter().rev()), Some(summary));
        }
    }
}
