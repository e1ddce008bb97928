//! Samples of a run: rates, queues, marks and pauses over time.

use std::time::Duration;

use super::flow::Flow;
use super::packet::{DATA_CLASS, Packet};
use roce_fabric::Fabric;
use roce_fabric::Time;

/// Samples of a run, at equal distances.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// The samples, at most 2²⁰.
    pub samples: Vec<Sample>,
}

/// State of the fabric and of the first flows at one time.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Time of the sample.
    pub at: Time,
    /// Bytes of data in the longest queue of all switches.
    pub longest_queue: u64,
    /// Frames marked since the start.
    pub marked: u64,
    /// XOFF frames that switches sent since the start.
    pub xoff_sent: u64,
    /// Frames lost in switches since the start, with those that a watchdog dropped.
    pub dropped: u64,
    /// Bytes that hosts received since the start.
    pub delivered_bytes: u64,
    /// Number of outputs that are paused.
    pub paused_ports: u64,
    /// Rate of each of the first flows in bits per second that its congestion control allows; 0 before its start and after its end.
    pub rates: Vec<f64>,
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

impl Trace {
    pub(super) fn sample(&mut self, fabric: &Fabric<Packet>, flows: &[Flow], packet: u32) {
        if self.samples.len() >= MAX_SAMPLES {
            return;
        }
        let now = fabric.now();
        let (mut longest_queue, mut paused_ports) = (0, 0);
        for node in 0..fabric.topology().nodes() {
            if fabric.topology().is_switch(node) {
                let switch = fabric.switch(node);
                for port in 0..switch.ports() {
                    longest_queue = longest_queue.max(switch.queue_bytes(port, DATA_CLASS));
                    paused_ports += u64::from(switch.is_paused(now, port, DATA_CLASS));
                }
            }
        }
        let counters = fabric.switch_counters();
        let rate = |flow: &Flow| if flow.is_active() { flow.control.rate(packet) } else { 0.0 };
        self.samples.push(Sample {
            at: now,
            longest_queue,
            marked: counters.marked_frames,
            xoff_sent: counters.xoff_sent,
            dropped: counters.dropped_frames + counters.discarded_frames,
            delivered_bytes: fabric.counters().delivered_bytes,
            paused_ports,
            rates: flows.iter().take(MAX_RATES).map(rate).collect(),
        });
    }

    /// Returns the lengths of the longest queue from this time after the start.
    pub fn queue_stats(&self, warm_up: Duration) -> QueueStats {
        let start = Time::START + warm_up;
        let late = self.samples.iter().filter(|sample| sample.at >= start);
        let mut lengths: Vec<_> = late.map(|sample| sample.longest_queue).collect();
        lengths.sort_unstable();
        let (Some(max), count) = (lengths.last().copied(), lengths.len() as f64) else {
            return QueueStats::default();
        };
        let mean = lengths.iter().sum::<u64>() as f64 / count;
        let square = |length: &u64| (*length as f64 - mean).powi(2);
        let at = |share: f64| lengths[((count - 1.0) * share) as usize];
        QueueStats {
            mean,
            deviation: (lengths.iter().map(square).sum::<f64>() / count).sqrt(),
            p50: at(0.5),
            p99: at(0.99),
            max,
        }
    }

    /// Returns the mean rate of each of the first flows from this time after the start.
    pub fn mean_rates(&self, warm_up: Duration) -> Vec<f64> {
        let start = Time::START + warm_up;
        let late: Vec<_> = self.samples.iter().filter(|sample| sample.at >= start).collect();
        let flows = late.first().map_or(0, |sample| sample.rates.len());
        let mean = |flow: usize| {
            late.iter().map(|sample| sample.rates[flow]).sum::<f64>() / late.len() as f64
        };
        (0..flows).map(mean).collect()
    }
}

/// Most samples of a trace.
const MAX_SAMPLES: usize = 1 << 20;
/// Most flows whose rates are sampled.
const MAX_RATES: usize = 64;
