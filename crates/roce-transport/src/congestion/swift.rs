//! Swift: a window that keeps the delay at a target.

use core::time::Duration;

use super::{AckSample, CongestionControl};
use crate::Instant;

/// Parameters of [`Swift`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SwiftParameters {
    /// Target of the round trip time of a sender with a large window.
    pub base_target: Duration,
    /// Largest addition to the target, for senders with small windows: they share a queue with many.
    pub flow_scaling: Duration,
    /// Windows in packets at which the addition is largest and none.
    pub flow_scaling_windows: [f64; 2],
    /// Packets by which the window grows in a round trip below the target.
    pub additive_increase: f64,
    /// Factor from the excess of the delay to the decrease of the window.
    pub beta: f64,
    /// Largest share that one decrease takes, 0 to 1.
    pub max_decrease: f64,
    /// Smallest and largest window in packets; the smallest may be below one.
    pub windows: [f64; 2],
    /// Bytes of a packet, at least 1.
    pub packet: u64,
}

impl Default for SwiftParameters {
    /// 50 µs, up to 50 µs more between 0.1 and 100 packets, one packet, 0.8, one half, 0.01 to 256
    /// packets of 4096 bytes.
    fn default() -> Self {
        Self {
            base_target: Duration::from_micros(50),
            flow_scaling: Duration::from_micros(50),
            flow_scaling_windows: [0.1, 100.0],
            additive_increase: 1.0,
            beta: 0.8,
            max_decrease: 0.5,
            windows: [0.01, 256.0],
            packet: 4096,
        }
    }
}

/// A window that grows by a packet in each round trip while the delay is below a target, and shrinks
/// at most once in each in proportion to what the delay is above it. It needs no marks.
///
/// A window below one packet is a rate: one packet in several round trips.
///
/// Source: Kumar et al., Swift: Delay is Simple and Effective for Congestion Control in the
/// Datacenter, SIGCOMM 2020.
///
/// ```
/// use roce_transport::Instant;
/// use roce_transport::congestion::{AckSample, CongestionControl, Swift, SwiftParameters};
/// use std::time::Duration;
///
/// let mut control = Swift::new(SwiftParameters::default());
/// let before = control.window();
/// let slow = AckSample { bytes: 4096, rtt: Some(Duration::from_millis(1)), is_marked: false };
/// control.on_ack(Instant::from_nanos(1_000_000), slow);
/// assert!(control.window() < before);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Swift {
    parameters: SwiftParameters,
    /// In packets.
    window: f64,
    rtt: Duration,
    /// The next decrease is no earlier.
    decrease_from: Instant,
}

impl Swift {
    /// Creates the window of one sender, which begins with the largest.
    pub fn new(parameters: SwiftParameters) -> Self {
        let window = parameters.windows[1].max(parameters.windows[0]);
        let parameters = SwiftParameters { packet: parameters.packet.max(1), ..parameters };
        Self { parameters, window, rtt: parameters.base_target, decrease_from: Instant::default() }
    }

    /// Returns the target of the round trip time with the present window.
    pub fn target(&self) -> Duration {
        let [small, large] =
            self.parameters.flow_scaling_windows.map(|it| libm::sqrt(it.max(1e-6)));
        // Falls with the inverse of the window's root: from the largest addition to none.
        let share = (1.0 / libm::sqrt(self.window) - 1.0 / large) / (1.0 / small - 1.0 / large);
        let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
        self.parameters.base_target + self.parameters.flow_scaling.mul_f64(share)
    }

    fn resize(&mut self, window: f64) {
        let [min, max] = self.parameters.windows;
        self.window = window.max(min).min(max.max(min));
    }

    fn may_decrease(&mut self, now: Instant) -> bool {
        let may = now >= self.decrease_from;
        if may {
            self.decrease_from = now + self.rtt;
        }
        may
    }
}

impl CongestionControl for Swift {
    fn on_sent(&mut self, _now: Instant, _bytes: u64) {}

    fn on_ack(&mut self, now: Instant, sample: AckSample) {
        let Some(rtt) = sample.rtt else { return };
        self.rtt = rtt;
        let target = self.target();
        let SwiftParameters { additive_increase, beta, max_decrease, packet, .. } = self.parameters;
        if rtt < target {
            let packets = sample.bytes as f64 / packet as f64;
            let step = if self.window >= 1.0 { packets / self.window } else { packets };
            self.resize(self.window + additive_increase * step);
        } else if self.may_decrease(now) {
            let excess = (rtt - target).as_secs_f64() / rtt.as_secs_f64().max(1e-9);
            let kept = (1.0 - beta * excess).max(1.0 - max_decrease);
            self.resize(self.window * kept);
        }
    }

    fn on_cnp(&mut self, _now: Instant) {}

    fn on_loss(&mut self, now: Instant) {
        if self.may_decrease(now) {
            self.resize(self.window * (1.0 - self.parameters.max_decrease));
        }
    }

    fn on_timer(&mut self, _now: Instant) {}

    fn next_timer(&self) -> Option<Instant> {
        None
    }

    fn rate(&self) -> Option<u64> {
        let bits = self.window * self.parameters.packet as f64 * 8.0;
        (self.window < 1.0).then(|| (bits / self.rtt.as_secs_f64().max(1e-9)) as u64)
    }

    fn window(&self) -> Option<u64> {
        Some((self.window * self.parameters.packet as f64) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Instant {
        Instant::from_nanos(micros * 1_000)
    }

    fn ack(rtt: u64) -> AckSample {
        AckSample { bytes: 4096, rtt: Some(Duration::from_micros(rtt)), is_marked: false }
    }

    #[test]
    fn the_delay_of_a_shared_queue_settles_at_the_target() {
        // A link of one packet per microsecond, 20 µs of round trip without a queue.
        let mut control = Swift::new(SwiftParameters::default());
        let mut now = 0;
        let mut delays = Vec::new();
        for _ in 0..20_000 {
            let delay = 20 + (control.window - 20.0).max(0.0) as u64;
            now += (delay as f64 / control.window).ceil() as u64;
            control.on_ack(at(now), ack(delay));
            delays.push(delay);
        }
        let late = &delays[10_000..];
        let mean = late.iter().sum::<u64>() as f64 / late.len() as f64;
        let target = control.target().as_micros() as f64;
        assert!((mean - target).abs() < 0.1 * target, "{mean} beside {target}");
    }

    #[test]
    fn the_window_shrinks_once_in_a_round_trip_and_by_no_more_than_its_bound() {
        let mut control = Swift::new(SwiftParameters::default());
        for micros in 1_000..1_900 {
            control.on_ack(at(micros), ack(1_000));
        }
        let window = control.window;
        assert!((128.0..256.0).contains(&window), "{window}");
    }

    #[test]
    fn a_window_below_one_packet_is_a_rate() {
        let mut control = Swift::new(SwiftParameters::default());
        assert_eq!(control.rate(), None);
        let mut now = 0;
        while control.window >= 0.5 {
            now += 2_000;
            control.on_ack(at(now), ack(1_000));
        }
        let expected = control.window * 4096.0 * 8.0 / 1e-3;
        assert_eq!(control.rate(), Some(expected as u64));
    }

    #[test]
    fn senders_with_small_windows_have_a_larger_target() {
        let mut control = Swift::new(SwiftParameters::default());
        let large = control.target();
        assert_eq!(large, Duration::from_micros(50));
        control.window = 0.05;
        assert_eq!(control.target(), Duration::from_micros(100));
    }
}
