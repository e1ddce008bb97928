//! One direction of a link: a queue that drains at a rate into a pipe with latency.

use std::collections::VecDeque;
use std::time::Duration;

use crate::{Impairment, Instant};

/// What a link is made of; both directions alike.
///
/// ```
/// use roce_fabric::LinkConfig;
/// use std::time::Duration;
///
/// let slow = LinkConfig { bits_per_sec: Some(1_000_000), ..LinkConfig::default() };
/// assert_eq!(slow.time_on_wire(125), Duration::from_millis(1));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkConfig {
    /// From the last bit out to the last bit in.
    pub latency: Duration,
    /// Bits a second; `None` sends a frame in no time. A rate of 0 counts as 1.
    pub bits_per_sec: Option<u64>,
    /// Frames that may wait or be on their way out at once; one more is lost. A link without
    /// a rate never queues.
    pub queue_frames: usize,
}

impl LinkConfig {
    /// An infinitely fast link with this latency.
    pub const fn with_latency(latency: Duration) -> Self {
        Self { latency, bits_per_sec: None, queue_frames: usize::MAX }
    }

    /// How long `len` bytes take to leave.
    pub fn time_on_wire(&self, len: usize) -> Duration {
        let Some(rate) = self.bits_per_sec else { return Duration::ZERO };
        let nanos = (len as u128 * 8 * 1_000_000_000).div_ceil(u128::from(rate.max(1)));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

impl Default for LinkConfig {
    /// One microsecond, no rate, no queue limit.
    fn default() -> Self {
        Self::with_latency(Duration::from_micros(1))
    }
}

/// One direction: its impairment, and when its queued frames leave.
#[derive(Debug)]
pub(crate) struct Direction {
    pub(crate) config: LinkConfig,
    pub(crate) impairment: Impairment,
    /// When each queued frame will have left; oldest first.
    departures: VecDeque<Instant>,
}

impl Direction {
    pub(crate) fn new(config: LinkConfig) -> Self {
        Self { config, impairment: Impairment::default(), departures: VecDeque::new() }
    }

    /// When a frame handed over `now` arrives at the other end; `None` when the queue is full.
    pub(crate) fn admit(&mut self, now: Instant, len: usize) -> Option<Instant> {
        if self.config.bits_per_sec.is_none() {
            return Some(now + self.config.latency);
        }
        while self.departures.front().is_some_and(|left| *left <= now) {
            self.departures.pop_front();
        }
        if self.departures.len() >= self.config.queue_frames {
            return None;
        }
        let start = self.departures.back().copied().unwrap_or(now);
        let left = start + self.config.time_on_wire(len);
        self.departures.push_back(left);
        Some(left + self.config.latency)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOW: LinkConfig = LinkConfig {
        latency: Duration::from_nanos(50),
        bits_per_sec: Some(8_000_000_000), // a byte a nanosecond
        queue_frames: 2,
    };

    #[test]
    fn frames_leave_one_after_the_other_at_the_link_rate() {
        let mut link = Direction::new(SLOW);
        assert_eq!(link.admit(Instant::START, 100), Some(Instant::from_nanos(150)));
        assert_eq!(link.admit(Instant::START, 100), Some(Instant::from_nanos(250)));
    }

    #[test]
    fn a_full_queue_refuses_until_a_frame_has_left() {
        let mut link = Direction::new(SLOW);
        assert!(link.admit(Instant::START, 100).is_some());
        assert!(link.admit(Instant::START, 100).is_some());
        assert_eq!(link.admit(Instant::from_nanos(99), 100), None);
        assert_eq!(link.admit(Instant::from_nanos(100), 100), Some(Instant::from_nanos(350)));
    }

    #[test]
    fn an_idle_link_starts_afresh() {
        let mut link = Direction::new(SLOW);
        link.admit(Instant::START, 10);
        assert_eq!(link.admit(Instant::from_nanos(1000), 10), Some(Instant::from_nanos(1060)));
    }
}
