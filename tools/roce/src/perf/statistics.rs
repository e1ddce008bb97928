//! perftest's statistics of a list of times.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Statistics of half round trips, whole ones for one-sided operations, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Latency {
    /// Minimum.
    pub(crate) min: f64,
    /// Maximum without the two slowest.
    pub(crate) max: f64,
    /// Median.
    pub(crate) typical: f64,
    pub(crate) average: f64,
    pub(crate) deviation: f64,
    /// 99th percentile.
    pub(crate) percentile_99: f64,
    /// 99.9th percentile.
    pub(crate) percentile_99_9: f64,
}

impl Latency {
    /// Computes the statistics of the times between messages, divided by `parts`: 2 for a ping and
    /// its pong, 1 for an operation without a returned message.
    ///
    /// As in perftest, the two slowest are left out: the first message, and one that the scheduler
    /// delayed. `None` for fewer than four times.
    pub(crate) fn of(mut round_trips: Vec<Duration>, parts: u32) -> Option<Self> {
        round_trips.sort_unstable();
        let kept = round_trips.len().checked_sub(SLOWEST_LEFT_OUT).filter(|kept| *kept >= 2)?;
        let micros = |duration: Duration| duration.as_secs_f64() * 1e6 / f64::from(parts);
        let times: Vec<f64> = round_trips[..kept].iter().map(|time| micros(*time)).collect();
        let count = kept as f64;
        let average = times.iter().sum::<f64>() / count;
        let variance = times.iter().map(|time| (time - average).powi(2)).sum::<f64>() / count;
        // Nearest rank.
        let rank = |share: f64| times[((count * share).ceil() as usize).clamp(1, kept) - 1];
        Some(Self {
            min: times[0],
            max: times[kept - 1],
            typical: (times[(kept - 1) / 2] + times[kept / 2]) / 2.0,
            average,
            deviation: variance.sqrt(),
            percentile_99: rank(0.99),
            percentile_99_9: rank(0.999),
        })
    }
}

const SLOWEST_LEFT_OUT: usize = 2;

/// Times of posts and of completions since a start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timeline {
    /// Time of the first post, in short runs of every post.
    posted: Vec<Duration>,
    /// Number of completed messages and time: of the last completion, in short runs of every one.
    completed: Vec<(u64, Duration)>,
    long: bool,
}

impl Timeline {
    /// For a run of so many messages.
    pub(crate) fn new(messages: u64) -> Self {
        Self { long: messages > PEAK_MESSAGES, ..Self::default() }
    }

    /// A message is posted.
    ///
    /// The clock is asked only where the answer is kept: it costs more than a small message.
    pub(crate) fn post(&mut self, at: impl FnOnce() -> Duration) {
        if !self.long || self.posted.is_empty() {
            self.posted.push(at());
        }
    }

    /// `count` messages are complete in all.
    pub(crate) fn complete(&mut self, count: u64, at: Duration) {
        if self.long {
            self.completed.clear();
        }
        self.completed.push((count, at));
    }

    /// Messages per second over the whole run.
    pub(crate) fn average_rate(&self) -> f64 {
        let (Some(start), Some((count, end))) = (self.posted.first(), self.completed.last()) else {
            return 0.0;
        };
        rate(*count, end.saturating_sub(*start))
    }

    /// The highest rate between any posting and any later completion, as perftest's peak;
    /// `None` in a long run.
    ///
    /// Time O(postings × completions).
    pub(crate) fn peak_rate(&self) -> Option<f64> {
        if self.long {
            return None;
        }
        let spans = self.posted.iter().enumerate().flat_map(|(index, start)| {
            let index = index as u64;
            let later = self.completed.iter().filter(move |(count, _)| *count > index);
            later.map(move |(count, end)| rate(count - index, end.saturating_sub(*start)))
        });
        spans.reduce(f64::max)
    }
}

/// Messages in a run beyond which no peak is measured: perftest's own bound.
const PEAK_MESSAGES: u64 = 20_000;

fn rate(messages: u64, span: Duration) -> f64 {
    if span.is_zero() { 0.0 } else { messages as f64 / span.as_secs_f64() }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::{Latency, PEAK_MESSAGES, Timeline};

    fn micros(times: impl IntoIterator<Item = u64>) -> Vec<Duration> {
        times.into_iter().map(Duration::from_micros).collect()
    }

    #[test]
    fn one_to_a_thousand_has_the_percentiles_that_it_must_have() {
        let latency = Latency::of(micros((1..=1000).chain([5000, 9000]).rev()), 1).unwrap();
        assert_eq!((latency.min, latency.max), (1.0, 1000.0));
        assert!((latency.percentile_99 - 990.0).abs() < 0.001);
        assert!((latency.percentile_99_9 - 999.0).abs() < 0.001);
        assert_eq!((latency.typical, latency.average), (500.5, 500.5));
        assert!((latency.deviation - 288.675).abs() < 0.001);
    }

    #[test]
    fn a_ping_and_its_pong_are_two_halves() {
        let latency = Latency::of(micros([10, 20, 30, 40, 50]), 2).unwrap();
        assert_eq!((latency.min, latency.typical, latency.max), (5.0, 10.0, 15.0));
    }

    #[test]
    fn too_few_times_make_no_statistics() {
        assert_eq!(Latency::of(micros([1, 2, 3]), 2), None);
    }

    #[test]
    fn the_peak_is_found_between_a_slow_start_and_a_slow_end() {
        let mut timeline = Timeline::new(10);
        // Ten messages: the middle ones 1 ms apart, a second of silence before and after.
        for index in 0..10 {
            let late = Duration::from_millis(index) + Duration::from_secs((index > 0).into());
            timeline.post(|| late);
            let end = if index == 9 { Duration::from_secs(3) } else { late };
            timeline.complete(index + 1, end + Duration::from_millis(1));
        }
        let peak = timeline.peak_rate().unwrap();
        assert!((peak - 1000.0).abs() < 1.0, "{peak}");
        assert!((timeline.average_rate() - 10.0 / 3.001).abs() < 0.01);
    }

    #[test]
    fn a_long_run_has_an_average_and_no_peak() {
        let mut timeline = Timeline::new(PEAK_MESSAGES + 1);
        for index in 0..10 {
            timeline.post(|| Duration::from_secs(index));
            timeline.complete(index + 1, Duration::from_secs(index + 1));
        }
        assert_eq!((timeline.peak_rate(), timeline.average_rate()), (None, 1.0));
    }

    proptest! {
        #[test]
        fn statistics_are_ordered_and_within_what_was_measured(
            times in prop::collection::vec(1u64..1_000_000, 4..300),
        ) {
            let (low, high) = (*times.iter().min().unwrap(), *times.iter().max().unwrap());
            let latency = Latency::of(micros(times), 1).unwrap();
            let close = 1e-6;
            prop_assert!((low as f64 - latency.min).abs() < close);
            prop_assert!(latency.min <= latency.typical && latency.typical <= latency.max);
            prop_assert!(latency.min - close <= latency.average);
            prop_assert!(latency.average <= latency.max + close);
            prop_assert!(latency.typical <= latency.percentile_99);
            prop_assert!(latency.percentile_99 <= latency.percentile_99_9);
            prop_assert!(latency.percentile_99_9 <= latency.max);
            prop_assert!(latency.max <= high as f64);
        }

        #[test]
        fn the_peak_is_never_below_the_average(
            gaps in prop::collection::vec((1u64..1000, 1u64..1000), 1..60),
        ) {
            let (mut timeline, mut now) = (Timeline::default(), Duration::ZERO);
            for (index, (before, after)) in gaps.into_iter().enumerate() {
                now += Duration::from_micros(before);
                timeline.post(|| now);
                now += Duration::from_micros(after);
                timeline.complete(index as u64 + 1, now);
            }
            let (peak, average) = (timeline.peak_rate().unwrap(), timeline.average_rate());
            prop_assert!(peak >= average * (1.0 - 1e-9), "{peak} {average}");
        }
    }
}
