//! Parameters of a switch.

use std::time::Duration;

use roce_fabric::SwitchConfig;

/// Parameters of a switch between real interfaces.
#[derive(Clone, Debug, PartialEq)]
pub struct SwitchSettings {
    /// Bits per second of each port in each direction, at least 1. Preamble, FCS and gap count.
    pub bits_per_sec: u64,
    /// Propagation delay of each link.
    pub delay: Duration,
    /// Buffer, marking, flow control and classes.
    pub queues: SwitchConfig,
    /// Seed of the marks.
    pub seed: u64,
}

impl Default for SwitchSettings {
    /// 1 Gbit/s, 1 µs, 1 MiB of buffer of which a queue may hold as much as is free, seed 1; no marks
    /// and no flow control.
    fn default() -> Self {
        let queues = SwitchConfig { buffer_bytes: 1 << 20, alpha: 1.0, ..SwitchConfig::default() };
        Self { bits_per_sec: 1_000_000_000, delay: Duration::from_micros(1), queues, seed: 1 }
    }
}
