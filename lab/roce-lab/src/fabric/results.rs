//! Results of flows over a fabric.

use std::time::Duration;

use roce_fabric::{FabricCounters, PortCounters};
use roce_transport::Instant;

use super::FlowSpec;

/// Results of a [`FabricScenario`](super::FabricScenario).
#[derive(Clone, Debug, PartialEq)]
pub struct FabricResults {
    /// Time of the end.
    pub time: Instant,
    /// The flows, in the order in which they were given.
    pub flows: Vec<FlowResult>,
    /// Counters of links and hosts.
    pub fabric: FabricCounters,
    /// Sum of the counters of all switch ports.
    pub switches: PortCounters,
    /// Lengths of the longest queue.
    pub queue: QueueStats,
    /// Packets that the engines sent again.
    pub resent: u64,
    /// CNPs that the engines sent.
    pub cnps: u64,
    /// ACK timeouts of the engines.
    pub timeouts: u64,
}

/// Result of one flow.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowResult {
    /// The flow.
    pub spec: FlowSpec,
    /// Payload bytes of acknowledged messages.
    pub delivered: u64,
    /// Time at which the last message was acknowledged.
    pub finished: Option<Instant>,
}

/// Lengths of the longest queue over time, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct QueueStats {
    /// Mean.
    pub mean: f64,
    /// Standard deviation.
    pub deviation: f64,
    /// Median.
    pub p50: u64,
    /// 99th percentile.
    pub p99: u64,
    /// Maximum.
    pub max: u64,
}

impl FlowResult {
    /// Returns the payload bits per second from the flow's start to its end, or to `now`.
    pub fn goodput(&self, now: Instant) -> f64 {
        let span = self.finished.unwrap_or(now).saturating_since(self.spec.start).as_secs_f64();
        if span > 0.0 { self.delivered as f64 * 8.0 / span } else { 0.0 }
    }

    /// Returns the time from the flow's start to its end.
    pub fn completion_time(&self) -> Option<Duration> {
        self.finished.map(|end| end.saturating_since(self.spec.start))
    }
}

impl FabricResults {
    /// Returns the sum of the goodputs in bits per second over the whole run.
    pub fn goodput(&self) -> f64 {
        let bytes: u64 = self.flows.iter().map(|flow| flow.delivered).sum();
        let span = self.time.saturating_since(Instant::default()).as_secs_f64();
        if span > 0.0 { bytes as f64 * 8.0 / span } else { 0.0 }
    }

    /// Returns Jain's index of the flows' goodputs: 1 if all are equal, 1/N if one has all.
    pub fn fairness(&self) -> f64 {
        let goodputs = || self.flows.iter().map(|flow| flow.goodput(self.time));
        let (sum, squares) = (goodputs().sum::<f64>(), goodputs().map(|it| it * it).sum::<f64>());
        if squares > 0.0 { sum * sum / (self.flows.len() as f64 * squares) } else { 1.0 }
    }

    /// Returns a percentile (0 to 1) of the completion times of finished flows.
    pub fn completion_time(&self, share: f64) -> Option<Duration> {
        let mut times: Vec<_> = self.flows.iter().filter_map(FlowResult::completion_time).collect();
        times.sort_unstable();
        let last = times.len().checked_sub(1)?;
        times.get((last as f64 * share.clamp(0.0, 1.0)).round() as usize).copied()
    }
}

impl QueueStats {
    /// Returns the statistics of these lengths.
    pub(super) fn of(mut lengths: Vec<u64>) -> Self {
        lengths.sort_unstable();
        let (Some(max), count) = (lengths.last().copied(), lengths.len() as f64) else {
            return Self::default();
        };
        let mean = lengths.iter().sum::<u64>() as f64 / count;
        let square = |length: &u64| (*length as f64 - mean).powi(2);
        let at = |share: f64| lengths[((count - 1.0) * share) as usize];
        Self {
            mean,
            deviation: (lengths.iter().map(square).sum::<f64>() / count).sqrt(),
            p50: at(0.5),
            p99: at(0.99),
            max,
        }
    }
}
