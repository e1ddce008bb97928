//! Results of a simulation.

use std::time::Duration;

use super::{FlowSpec, QueueStats};
use roce_fabric::Time;
use roce_fabric::{FabricCounters, PortCounters};

/// Results of a [`Simulation`](super::Simulation).
#[derive(Clone, Debug, PartialEq)]
pub struct Results {
    /// Time of the end.
    pub time: Time,
    /// The flows, in the order in which they were given.
    pub flows: Vec<FlowResult>,
    /// Counters of links and hosts.
    pub fabric: FabricCounters,
    /// Sum of the counters of all switch ports.
    pub switches: PortCounters,
    /// Lengths of the longest queue.
    pub queue: QueueStats,
}

/// Result of one flow.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowResult {
    /// The flow.
    pub spec: FlowSpec,
    /// Payload bytes received in order.
    pub delivered: u64,
    /// Time at which the last byte arrived.
    pub finished: Option<Time>,
    /// Data packets sent.
    pub sent: u64,
    /// Data packets sent again.
    pub resent: u64,
    /// CNPs that the receiver sent.
    pub cnps: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
}

impl FlowResult {
    /// Returns the payload bits per second from the flow's start to its end, or to `now`.
    pub fn goodput(&self, now: Time) -> f64 {
        let span = (self.finished.unwrap_or(now) - self.spec.start).as_secs_f64();
        if span > 0.0 { self.delivered as f64 * 8.0 / span } else { 0.0 }
    }

    /// Returns the time from the flow's start to its end.
    pub fn completion_time(&self) -> Option<Duration> {
        self.finished.map(|end| end - self.spec.start)
    }
}

impl Results {
    /// Returns the sum of the goodputs in bits per second over the whole run.
    pub fn goodput(&self) -> f64 {
        let bytes: u64 = self.flows.iter().map(|flow| flow.delivered).sum();
        let span = (self.time - Time::START).as_secs_f64();
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
