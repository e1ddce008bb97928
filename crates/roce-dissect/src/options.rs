//! What a dissector does besides reading headers.

use std::time::Duration;

/// What a dissector does besides reading headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Follow connections: gaps, duplicates, answers, messages. Default true.
    pub follow: bool,
    /// Silence for this long while requests are outstanding is a stall. Default 10 ms.
    pub stall: Duration,
    /// Directions of connections that are followed at the same time, each at most 16 KiB; what
    /// comes on others is read and not followed. Default 2^20.
    pub max_flows: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { follow: true, stall: Duration::from_millis(10), max_flows: 1 << 20 }
    }
}
