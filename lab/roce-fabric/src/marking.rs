//! ECN marking: random early detection on the length of a queue.

/// Thresholds of ECN marking by random early detection (RED), on the queue's present length.
///
/// ```
/// use roce_fabric::EcnMarking;
///
/// let marking = EcnMarking { kmin: 5_000, kmax: 200_000, pmax: 0.01 };
/// assert_eq!(marking.probability(5_000), 0.0);
/// assert!((marking.probability(102_500) - 0.005).abs() < 1e-9);
/// assert_eq!(marking.probability(200_001), 1.0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EcnMarking {
    /// Longest queue in bytes without marks.
    pub kmin: u64,
    /// Longest queue in bytes without certain marks.
    pub kmax: u64,
    /// Probability of a mark at `kmax`, 0 to 1.
    pub pmax: f64,
}

impl EcnMarking {
    /// Thresholds of the DCQCN paper for 40 Gbit/s: 5 KB, 200 KB, 1 %.
    pub const PAPER: Self = Self { kmin: 5_000, kmax: 200_000, pmax: 0.01 };

    /// Returns thresholds in proportion to the rate: 100 KB and 400 KB at 25 Gbit/s, 20 %.
    pub const fn for_rate(bits_per_sec: u64) -> Self {
        let kmin = bits_per_sec / 250_000;
        Self { kmin, kmax: 4 * kmin, pmax: 0.2 }
    }

    /// Returns the probability of a mark on a frame that finds `queued` bytes in its queue.
    pub fn probability(&self, queued: u64) -> f64 {
        if queued <= self.kmin {
            0.0
        } else if queued > self.kmax {
            1.0
        } else {
            self.pmax * (queued - self.kmin) as f64 / (self.kmax - self.kmin) as f64
        }
    }
}
