//! The result of one message size.

use serde::{Deserialize, Serialize};

use super::fairness::Fairness;
use super::loss::Loss;
use super::statistics::Latency;

/// The result for one size; rates are messages per second, times microseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Row {
    Bandwidth {
        size: u32,
        messages: u64,
        peak: Option<f64>,
        average: f64,
        fairness: Option<Fairness>,
    },
    Latency {
        size: u32,
        iterations: u64,
        latency: Latency,
    },
    LatencyOverTime {
        size: u32,
        iterations: u64,
        average: f64,
        rate: f64,
    },
}

/// The message of a client at the end of one size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SizeResult {
    pub(crate) row: Row,
    /// Lost messages, of a service without acknowledgements.
    pub(crate) loss: Option<Loss>,
    /// The number of positions that messages used.
    pub(crate) places_used: u64,
}
