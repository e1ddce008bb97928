//! Medians and spreads: the only arithmetic between a measurement and the table.

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
        let mut sorted: Vec<f64> = values.into_iter().collect();
        if sorted.iter().any(|value| !value.is_finite()) {
            return None;
        }
        sorted.sort_by(f64::total_cmp);
        let count = sorted.len();
        let (low, high) = (*sorted.first()?, *sorted.last()?);
        Some(Self { median: (sorted[(count - 1) / 2] + sorted[count / 2]) / 2.0, low, high, count })
    }

    /// How ours compares with theirs.
    ///
    /// Its median is the quotient of the two medians: what the table's columns show divides to
    /// it. Its spread is that of the quotients of rounds in which both ran, since what disturbs
    /// the machine in one round disturbs both.
    ///
    /// Each measurement comes with its round. `None` when either has none, or theirs holds a
    /// zero.
    pub fn ratio(ours: &[(u32, f64)], theirs: &[(u32, f64)]) -> Option<Self> {
        let values = |all: &[(u32, f64)]| Self::of(all.iter().map(|(_, value)| *value));
        let quotient = values(ours)?.median / values(theirs)?.median;
        let rounds = ours.iter().flat_map(|(round, mine)| {
            let same = theirs.iter().filter(move |(theirs, _)| theirs == round);
            same.map(move |(_, other)| mine / other)
        });
        // Without a common round there is a quotient, and no spread.
        let each: Vec<f64> = rounds.collect();
        let spread = if each.is_empty() { Self::of([quotient]) } else { Self::of(each) };
        let spread = spread.filter(|_| quotient.is_finite())?;
        Some(Self { median: quotient, ..spread })
    }
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

    #[test]
    fn a_ratio_is_that_of_the_medians_and_spreads_as_the_rounds_do() {
        let ours = [(1, 10.0), (2, 20.0), (3, 30.0)];
        let theirs = [(1, 10.0), (2, 10.0), (3, 5.0)];
        let ratio = Summary::ratio(&ours, &theirs).unwrap();
        assert_eq!((ratio.median, ratio.low, ratio.high, ratio.count), (2.0, 1.0, 6.0, 3));
    }

    #[test]
    fn a_round_in_which_only_one_ran_is_in_the_medians_and_not_in_the_spread() {
        let ratio = Summary::ratio(&[(1, 10.0), (2, 30.0)], &[(2, 10.0)]).unwrap();
        assert_eq!((ratio.median, ratio.low, ratio.high, ratio.count), (2.0, 3.0, 3.0, 1));
        let ratio = Summary::ratio(&[(1, 10.0)], &[(2, 5.0)]).unwrap();
        assert_eq!((ratio.median, ratio.low, ratio.high), (2.0, 2.0, 2.0));
    }

    #[test]
    fn nothing_is_compared_with_nothing_or_with_zero() {
        assert_eq!(Summary::ratio(&[], &[(1, 1.0)]), None);
        assert_eq!(Summary::ratio(&[(1, 1.0)], &[]), None);
        assert_eq!(Summary::ratio(&[(1, 1.0)], &[(1, 0.0)]), None);
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
