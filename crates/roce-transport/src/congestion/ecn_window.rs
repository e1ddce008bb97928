//! A window that reacts to the share of marked packets, as DCTCP's does.

use super::{AckSample, CongestionControl};
use crate::Instant;

/// Parameters of [`EcnWindow`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EcnParameters {
    /// Weight of the newest round trip in the estimate of the marked share, 0 to 1.
    pub gain: f64,
    /// Bytes of a packet, at least 1.
    pub packet: u64,
    /// Largest window in bytes, with which the sender begins.
    pub max_window: u64,
    /// Smallest window in bytes, at least 1.
    pub min_window: u64,
}

impl Default for EcnParameters {
    /// 1/16, 4096 bytes, 1 MiB, one packet.
    fn default() -> Self {
        Self { gain: 1.0 / 16.0, packet: 4096, max_window: 1 << 20, min_window: 4096 }
    }
}

/// A window that shrinks once per round trip by half of the estimated share of marked bytes, and
/// grows by a packet in a round trip without marks.
///
/// A mark is known from the peer's acknowledgements or from its CNPs; a CNP counts as one marked
/// packet. Losses halve the window once per round trip. Where nothing marks and nothing is lost, the
/// window stays the largest.
///
/// Source: RFC 8257.
///
/// ```
/// use roce_transport::Instant;
/// use roce_transport::congestion::{AckSample, CongestionControl, EcnParameters, EcnWindow};
///
/// let mut control = EcnWindow::new(EcnParameters::default());
/// let marked = AckSample { bytes: 1 << 20, rtt: None, is_marked: true };
/// control.on_ack(Instant::from_nanos(0), marked);
/// assert_eq!(control.window(), Some((1 << 20) / 32 * 31), "α is 1/16 after one marked window");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct EcnWindow {
    parameters: EcnParameters,
    /// In bytes.
    window: f64,
    /// Estimate of the marked share, 0 to 1.
    alpha: f64,
    /// Bytes acknowledged in this round trip, and how many of them were marked.
    acknowledged: u64,
    marked: u64,
    /// Bytes that end this round trip.
    round: u64,
    has_cut: bool,
}

impl EcnWindow {
    /// Creates the window of one sender. Parameters outside of their ranges are taken as the
    /// nearest in range.
    pub fn new(parameters: EcnParameters) -> Self {
        let min_window = parameters.min_window.max(1);
        let parameters = EcnParameters {
            gain: parameters.gain.clamp(0.0, 1.0),
            packet: parameters.packet.max(1),
            min_window,
            max_window: parameters.max_window.max(min_window),
        };
        Self {
            parameters,
            window: parameters.max_window as f64,
            alpha: 0.0,
            acknowledged: 0,
            marked: 0,
            round: parameters.max_window,
            has_cut: false,
        }
    }

    fn resize(&mut self, window: f64) {
        let EcnParameters { min_window, max_window, .. } = self.parameters;
        self.window = window.clamp(min_window as f64, max_window as f64);
    }

    fn end_round(&mut self) {
        let share = self.marked.min(self.acknowledged) as f64 / self.acknowledged.max(1) as f64;
        let gain = self.parameters.gain;
        self.alpha = (1.0 - gain) * self.alpha + gain * share;
        if self.marked > 0 {
            //= rule cc-ecn-window: RFC 8257 section 3.3
            //# The window shrinks once in a round trip by half of the estimated share of marked bytes.
            self.resize(self.window * (1.0 - self.alpha / 2.0));
        } else if !self.has_cut {
            self.resize(self.window + self.parameters.packet as f64);
        }
        self.acknowledged = 0;
        self.marked = 0;
        self.has_cut = false;
        self.round = self.window as u64;
    }
}

impl CongestionControl for EcnWindow {
    fn on_sent(&mut self, _now: Instant, _bytes: u64) {}

    fn on_ack(&mut self, _now: Instant, sample: AckSample) {
        self.acknowledged = self.acknowledged.saturating_add(sample.bytes);
        if sample.is_marked {
            self.marked = self.marked.saturating_add(sample.bytes);
        }
        if self.acknowledged >= self.round {
            self.end_round();
        }
    }

    fn on_cnp(&mut self, _now: Instant) {
        self.marked = self.marked.saturating_add(self.parameters.packet);
    }

    fn on_loss(&mut self, _now: Instant) {
        if !core::mem::replace(&mut self.has_cut, true) {
            self.resize(self.window / 2.0);
        }
    }

    fn on_timer(&mut self, _now: Instant) {}

    fn next_timer(&self) -> Option<Instant> {
        None
    }

    fn rate(&self) -> Option<u64> {
        None
    }

    fn window(&self) -> Option<u64> {
        Some(self.window as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_nanos(0);

    fn ack(bytes: u64, is_marked: bool) -> AckSample {
        AckSample { bytes, rtt: None, is_marked }
    }

    fn window(control: &EcnWindow) -> u64 {
        control.window().unwrap()
    }

    #[test]
    fn without_marks_and_losses_the_window_stays_the_largest() {
        let mut control = EcnWindow::new(EcnParameters::default());
        for _ in 0..10_000 {
            control.on_ack(NOW, ack(4096, false));
        }
        assert_eq!(window(&control), 1 << 20);
    }

    #[test]
    fn a_path_that_marks_everything_ends_at_the_smallest_window() {
        let mut control = EcnWindow::new(EcnParameters::default());
        for _ in 0..100_000 {
            control.on_ack(NOW, ack(4096, true));
        }
        assert_eq!(window(&control), 4096);
        for _ in 0..1_000_000 {
            control.on_ack(NOW, ack(4096, false));
        }
        assert_eq!(window(&control), 1 << 20, "it grows again by a packet per round trip");
    }

    //= test cc-ecn-window
    #[test]
    fn few_marks_cost_little_and_many_cost_much() {
        let cost = |marked_of_256: u64| {
            let mut control = EcnWindow::new(EcnParameters::default());
            // α settles first; the window is the largest in each round, as growth follows.
            for packet in 0..256 {
                control.on_ack(NOW, ack(4096, packet < marked_of_256));
            }
            (1 << 20) - window(&control)
        };
        let costs: Vec<u64> = [0, 1, 16, 256].into_iter().map(cost).collect();
        assert!(costs.is_sorted() && costs[0] == 0 && costs[3] == (1 << 20) / 32, "{costs:?}");
    }

    #[test]
    fn many_losses_in_a_round_trip_halve_the_window_once() {
        let mut control = EcnWindow::new(EcnParameters::default());
        for _ in 0..100 {
            control.on_loss(NOW);
        }
        assert_eq!(window(&control), 1 << 19);
    }

    #[test]
    fn a_cnp_counts_as_one_marked_packet() {
        let mut by_cnp = EcnWindow::new(EcnParameters::default());
        let mut by_ack = by_cnp;
        by_cnp.on_cnp(NOW);
        by_cnp.on_ack(NOW, ack(4096, false));
        by_ack.on_ack(NOW, ack(4096, true));
        for _ in 1..256 {
            by_cnp.on_ack(NOW, ack(4096, false));
            by_ack.on_ack(NOW, ack(4096, false));
        }
        assert_eq!(window(&by_cnp), window(&by_ack));
        assert!(window(&by_cnp) < 1 << 20);
    }
}
