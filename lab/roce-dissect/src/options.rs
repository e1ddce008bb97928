//! Options of a dissector.

use std::time::Duration;

/// Options of a [`Dissector`](crate::Dissector).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Follow connections to find gaps, duplicates, responses and messages. Default true.
    pub follow: bool,
    /// Minimum time without packets that is reported as a stall while requests are outstanding.
    /// Default 10 ms.
    pub stall: Duration,
    /// Maximum number of directions of connections to follow, at most 16 KiB each. Packets of
    /// further directions are reported but not followed. Default 2^20.
    pub max_flows: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { follow: true, stall: Duration::from_millis(10), max_flows: 1 << 20 }
    }
}
