//! The congestion control of a flow.

use std::time::Duration;

use super::{PatchedTimely, TimelyParams};

/// Congestion control of all flows.
#[derive(Clone, Debug, PartialEq)]
pub enum CongestionModel {
    /// Line rate.
    None,
    /// Patched TIMELY.
    Timely(TimelyParams),
}

/// Congestion control of one flow.
#[derive(Debug)]
pub(super) enum RateControl {
    None { rate: f64 },
    Timely(PatchedTimely),
}

impl RateControl {
    pub(super) fn new(model: &CongestionModel, line_rate: u64, first_rate: f64) -> Self {
        let rate = line_rate as f64;
        match model {
            CongestionModel::None => Self::None { rate: rate * first_rate },
            CongestionModel::Timely(params) => {
                Self::Timely(PatchedTimely::new(*params, rate, rate * first_rate))
            }
        }
    }

    /// Returns the rate in bits per second.
    pub(super) fn rate(&self) -> f64 {
        match self {
            Self::None { rate } => *rate,
            Self::Timely(timely) => timely.rate(),
        }
    }

    /// Handles an ACK that samples the queueing delay.
    pub(super) fn on_delay(&mut self, delay: Duration) {
        if let Self::Timely(timely) = self {
            timely.on_sample(delay);
        }
    }
}
