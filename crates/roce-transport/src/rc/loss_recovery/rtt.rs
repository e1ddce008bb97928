//! Estimates the round-trip time.

use core::ops::Range;
use core::time::Duration;

use crate::Instant;

/// Smoothed round-trip time and its variation, as TCP estimates them.
///
/// One packet at a time is measured, and none that was sent again: its response may be to either.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RttEstimator {
    /// In nanoseconds, as all of them, 4 seconds at most; 0 before the first measurement.
    srtt: u32,
    rttvar: u32,
    /// The shortest; 0 before the first measurement.
    min: u32,
    latest: u32,
    /// Packet that is being measured, and the instant it was sent.
    sample: Option<(u64, Instant)>,
}

/// Minimum probe timeout: a software peer may be busy for as long without a loss.
const MIN_PTO: Duration = Duration::from_micros(200);
/// Probe timeout before the first measurement.
const INITIAL_PTO: Duration = Duration::from_millis(10);

impl RttEstimator {
    /// A packet that requests a response was sent for the first time.
    pub(crate) fn on_sent(&mut self, seq: u64, now: Instant) {
        self.sample.get_or_insert((seq, now));
    }

    /// Returns true if a packet is being measured.
    pub(crate) fn is_timing(&self) -> bool {
        self.sample.is_some()
    }

    /// The packet being measured is sent again.
    //= rule rc-rtt-sent-once: RFC 6298 section 3
    //# A packet that was sent twice is not measured.
    pub(crate) fn discard_sample(&mut self) {
        self.sample = None;
    }

    /// Returns the round trip of the packet that is being measured, if everything before `to` is
    /// acknowledged now.
    pub(crate) fn sampled(&self, to: u64, now: Instant) -> Option<Duration> {
        let (_, sent) = self.sample.filter(|(seq, _)| *seq < to)?;
        Some(now.saturating_since(sent))
    }

    /// Everything before `to` is acknowledged.
    pub(crate) fn on_acknowledged(&mut self, to: u64, now: Instant) {
        let Some((_, sent)) = self.sample.take_if(|(seq, _)| *seq < to) else { return };
        let took = u32::try_from(now.saturating_since(sent).as_nanos()).unwrap_or(u32::MAX).max(1);
        self.latest = took;
        self.min = if self.min == 0 { took } else { self.min.min(took) };
        //= rule rc-rtt: RFC 6298 section 2
        //# A round trip counts an eighth in the mean, and its distance from that a quarter in the
        //# variation. The first one is the mean, and half of it the variation.
        if self.srtt == 0 {
            (self.srtt, self.rttvar) = (took, took / 2);
            return;
        }
        // The weights of RFC 6298: an eighth for the mean, a quarter for the variation.
        let weighed = |part: u32, old: u32, new: u32| {
            let sum = u64::from(part - 1) * u64::from(old) + u64::from(new);
            (sum / u64::from(part)) as u32 // at most the larger of the two
        };
        self.rttvar = weighed(4, self.rttvar, self.srtt.abs_diff(took));
        self.srtt = weighed(8, self.srtt, took);
    }

    /// The packets of `span` have arrived, though they are not acknowledged.
    pub(crate) fn on_reported(&mut self, span: &Range<u64>, now: Instant) {
        if let Some((seq, _)) = self.sample.filter(|(seq, _)| span.contains(seq)) {
            self.on_acknowledged(seq + 1, now);
        }
    }

    /// Measures packet `seq`, which is sent again, if no round trip is known: a wrong one is soon
    /// corrected.
    pub(crate) fn on_resent(&mut self, seq: u64, now: Instant) {
        self.sample = Some((seq, now)).filter(|_| self.min == 0);
    }

    /// What `span` contains is sent again.
    pub(crate) fn discard_sample_in(&mut self, span: &Range<u64>) {
        self.sample.take_if(|(measured, _)| span.contains(measured));
    }

    /// The packet being measured is sent again if it is before `seq`.
    pub(crate) fn discard_sample_before(&mut self, seq: u64) {
        self.sample.take_if(|(measured, _)| *measured < seq);
    }

    /// Returns the smoothed round trip in nanoseconds; 0 before the first measurement.
    pub(crate) const fn smoothed_nanos(&self) -> u64 {
        self.srtt as u64
    }

    /// Returns the shortest round trip in nanoseconds; 0 before the first measurement.
    pub(crate) const fn min_nanos(&self) -> u64 {
        self.min as u64
    }

    /// Returns a round trip in nanoseconds that is longer than most.
    pub(crate) const fn longest_nanos(&self) -> u64 {
        self.srtt as u64 + 4 * self.rttvar as u64
    }

    /// Returns true if round trips are longer than the shortest one by more than half of it, and by
    /// more than what a software peer may be busy.
    pub(crate) fn is_inflated(&self) -> bool {
        let more = (self.min / 2).max(MIN_PTO.as_nanos() as u32);
        self.srtt.min(self.latest) > self.min.saturating_add(more)
    }

    /// Returns true if a round trip was measured.
    pub(crate) const fn is_known(&self) -> bool {
        self.min > 0
    }

    /// Returns true if a response at `now` may be to a packet that was sent at `sent`.
    pub(crate) fn may_respond_to(&self, sent: Instant, now: Instant) -> bool {
        now.saturating_since(sent).as_nanos() >= u128::from(self.min)
    }

    /// Returns the probe timeout in nanoseconds: a few round trips.
    pub(crate) fn probe_timeout_nanos(&self) -> u64 {
        if self.srtt == 0 {
            return INITIAL_PTO.as_nanos() as u64;
        }
        let nanos = 2 * u64::from(self.srtt) + 4 * u64::from(self.rttvar);
        nanos.max(MIN_PTO.as_nanos() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn at(micros: u64) -> Instant {
        Instant::from_nanos(micros * 1000)
    }

    impl RttEstimator {
        fn probe_timeout(&self) -> Duration {
            Duration::from_nanos(self.probe_timeout_nanos())
        }
    }

    fn measured(micros: &[u64]) -> RttEstimator {
        let mut rtt = RttEstimator::default();
        for (seq, micros) in micros.iter().enumerate() {
            rtt.on_sent(seq as u64, at(0));
            rtt.on_acknowledged(seq as u64 + 1, at(*micros));
        }
        rtt
    }

    //= test rc-rtt
    #[test]
    fn the_probe_timeout_is_two_steady_round_trips_or_four_first_ones() {
        assert_eq!(measured(&[1000]).probe_timeout(), Duration::from_millis(4));
        let steady = measured(&[1000; 100]).probe_timeout();
        assert!((2000..2010).contains(&steady.as_micros()), "{steady:?}");
    }

    //= test rc-rtt-sent-once
    #[test]
    fn a_packet_sent_twice_is_not_measured() {
        let mut rtt = RttEstimator::default();
        rtt.on_sent(0, at(0));
        rtt.discard_sample();
        rtt.on_acknowledged(1, at(5000));
        assert_eq!(rtt.probe_timeout(), INITIAL_PTO);
    }

    #[test]
    fn one_packet_at_a_time_is_measured() {
        let mut rtt = RttEstimator::default();
        rtt.on_sent(0, at(0));
        rtt.on_sent(1, at(900));
        rtt.on_acknowledged(0, at(950));
        rtt.on_acknowledged(2, at(1000));
        assert_eq!(rtt.probe_timeout(), Duration::from_millis(4), "from the first");
    }

    proptest! {
        #[test]
        fn the_probe_timeout_is_at_least_two_of_the_shortest_round_trips_and_its_minimum(
            trips in prop::collection::vec(1..4_000_000u64, 1..50),
        ) {
            let probe_timeout = measured(&trips).probe_timeout();
            let shortest = Duration::from_micros(*trips.iter().min().unwrap());
            let longest = Duration::from_micros(*trips.iter().max().unwrap());
            // Integers round down, an eighth at a time.
            prop_assert!(probe_timeout + Duration::from_nanos(20) >= shortest * 2);
            prop_assert!(probe_timeout >= MIN_PTO && probe_timeout <= (longest * 6).max(MIN_PTO));
        }
    }
}
