//! What a switch has done.

use std::time::Duration;

use roce_fabric::PortCounters;

/// What a switch has done since its start.
#[derive(Clone, Debug, PartialEq)]
pub struct SwitchReport {
    /// Time since the start.
    pub elapsed: Duration,
    /// All ports.
    pub ports: Vec<PortReport>,
    /// Lengths of the longest queue of all ports and classes.
    pub longest_queue: QueueSummary,
    /// How well the loop kept its times.
    pub timing: LoopReport,
}

/// What a port has done.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PortReport {
    /// Name of its interface; empty in the report of a [`Forwarder`](crate::Forwarder).
    pub interface: String,
    /// Counters of the switch.
    pub counters: PortCounters,
    /// Frames from the host that were lost before the line to the switch: they found their queue
    /// full, or the socket's ring.
    pub host_dropped_frames: u64,
    /// Frames that arrived as a unit for segmentation, or longer than the interface's MTU.
    pub unusable_frames: u64,
    /// Frames for the host that its interface did not take.
    pub unsent_frames: u64,
    /// Classes with traffic.
    pub classes: Vec<ClassReport>,
}

/// What a class of a port has done.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassReport {
    /// Number of the class, 0 to 7.
    pub class: usize,
    /// Counters of the switch.
    pub counters: PortCounters,
    /// Lengths of the queue towards the host.
    pub queue: QueueSummary,
}

/// Lengths of a queue in bytes, sampled every 100 µs while frames passed the switch or waited.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct QueueSummary {
    /// Number of samples.
    pub samples: u64,
    /// Mean.
    pub mean: f64,
    /// Median, within 3 %.
    pub p50: u64,
    /// 99th percentile, within 3 %.
    pub p99: u64,
    /// Maximum.
    pub max: u64,
}

/// How well the loop kept its times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoopReport {
    /// Rounds of the loop.
    pub rounds: u64,
    /// 99th percentile of the time from an event of the model to the round that handled it.
    pub late_p99: Duration,
    /// The longest such time.
    pub late_max: Duration,
    /// Time that the switch stood still, since the loop came too late to catch up.
    pub given_up: Duration,
}
