//! Patched TIMELY: a rate from the gradient and the size of the delay.

use std::time::Duration;

/// Parameters of [`PatchedTimely`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimelyParams {
    /// Queueing delay below which the rate only rises.
    pub t_low: Duration,
    /// Queueing delay above which the rate only falls.
    pub t_high: Duration,
    /// Divisor of the gradient.
    pub min_rtt: Duration,
    /// Step of the rate in bits per second.
    pub delta: f64,
    /// Factor of the decrease, 0 to 1.
    pub beta: f64,
    /// Weight of the old gradient in its average, 0 to 1.
    pub smoothing: f64,
    /// Bytes between two samples of the delay.
    pub segment: u64,
}

impl Default for TimelyParams {
    /// 50 µs, 500 µs, 20 µs, 10 Mbit/s, 0.008, 0.125, 16 KB.
    fn default() -> Self {
        Self {
            t_low: Duration::from_micros(50),
            t_high: Duration::from_micros(500),
            min_rtt: Duration::from_micros(20),
            delta: 10e6,
            beta: 0.008,
            smoothing: 0.125,
            segment: 16_000,
        }
    }
}

/// TIMELY with a weight that depends continuously on the gradient, and with a decrease by the
/// distance from a reference delay, so that it has one fixed point: N flows on a link of C bits per
/// second have C/N each, and the queue is C·T_low·(1 + N·δ/(β·C)).
///
/// ```
/// use roce_simnet::traffic::{PatchedTimely, TimelyParams};
/// use std::time::Duration;
///
/// let mut timely = PatchedTimely::new(TimelyParams::default(), 10e9, 5e9);
/// timely.on_sample(Duration::from_micros(10));
/// assert_eq!(timely.rate(), 5.01e9);
/// ```
#[derive(Clone, Debug)]
pub struct PatchedTimely {
    params: TimelyParams,
    line_rate: f64,
    rate: f64,
    previous: Option<f64>,
    difference: f64,
}

impl PatchedTimely {
    /// Creates the control of a flow with a line rate and a first rate in bits per second.
    pub const fn new(params: TimelyParams, line_rate: f64, rate: f64) -> Self {
        Self { params, line_rate, rate, previous: None, difference: 0.0 }
    }

    /// Returns the rate in bits per second.
    pub const fn rate(&self) -> f64 {
        self.rate
    }

    /// Handles a sample of the queueing delay: the RTT without that of an idle network.
    pub fn on_sample(&mut self, delay: Duration) {
        let TimelyParams { t_low, t_high, min_rtt, delta, beta, smoothing, .. } = self.params;
        let (delay, low, high) = (delay.as_secs_f64(), t_low.as_secs_f64(), t_high.as_secs_f64());
        let step = delay - self.previous.replace(delay).unwrap_or(delay);
        self.difference = smoothing * self.difference + (1.0 - smoothing) * step;
        let gradient = self.difference / min_rtt.as_secs_f64();
        self.rate = if delay < low {
            self.rate + delta
        } else if delay > high {
            self.rate * (1.0 - beta * (1.0 - high / delay))
        } else {
            let weight = (2.0 * gradient + 0.5).clamp(0.0, 1.0);
            let excess = (delay - low) / low;
            delta * (1.0 - weight) + self.rate * (1.0 - beta * weight * excess)
        };
        self.rate = self.rate.clamp(self.line_rate / 1000.0, self.line_rate);
    }
}
