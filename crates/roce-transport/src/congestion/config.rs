//! Congestion control of an endpoint.

use core::time::Duration;

use super::DcqcnParameters;

/// Congestion control of an endpoint: its notification point and its reaction point. Parameters have
/// the names that ConnectX cards have for them, where they have them.
///
/// Packets are marked only if they are sent with ECN bits that allow it: the low two bits of the
/// path's traffic class. Without marks nothing of this has an effect, except
/// [`Swift`](CongestionAlgorithm::Swift), which measures delay.
///
/// ```
/// use roce_transport::EndpointConfig;
/// use roce_transport::congestion::{CongestionAlgorithm, CongestionConfig};
///
/// let congestion =
///     CongestionConfig { algorithm: CongestionAlgorithm::Dcqcn, ..CongestionConfig::default() };
/// let config = EndpointConfig { congestion, ..EndpointConfig::default() };
/// assert_eq!(config.congestion.np_cnp_dscp, 48);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CongestionConfig {
    /// Marked packets are answered: by CNPs, and by BECN on ACKs.
    pub np_enable: bool,
    /// Shortest time between two CNPs of a queue pair, in µs.
    pub np_min_time_between_cnps: u32,
    /// DSCP of CNPs, below 64. CNPs are never ECN-capable.
    pub np_cnp_dscp: u8,
    /// What limits the senders of reliable connections.
    pub algorithm: CongestionAlgorithm,
    /// Parameters of [`CongestionAlgorithm::Dcqcn`].
    pub dcqcn: DcqcnParameters,
    /// Rate of the link in bits per second: the rate at which DCQCN begins, and its largest.
    pub line_rate: u64,
    /// Round trip that [`CongestionAlgorithm::Swift`] keeps, if the window is large.
    pub swift_base_target: Duration,
}

/// What limits a sender where the path is congested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CongestionAlgorithm {
    /// Losses only.
    Loss,
    /// Losses, and a window that shrinks by the share of marked packets:
    /// [`EcnWindow`](super::EcnWindow).
    #[default]
    Ecn,
    /// Losses, and a rate that falls with each CNP: [`Dcqcn`](super::Dcqcn).
    Dcqcn,
    /// Losses, and a window that keeps the round trip at a target: [`Swift`](super::Swift).
    Swift,
}

impl CongestionAlgorithm {
    /// All of them, in the order of their declaration.
    pub const ALL: [Self; 4] = [Self::Loss, Self::Ecn, Self::Dcqcn, Self::Swift];

    /// Returns its name in lower case, as options have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Loss => "loss",
            Self::Ecn => "ecn",
            Self::Dcqcn => "dcqcn",
            Self::Swift => "swift",
        }
    }
}

impl Default for CongestionConfig {
    /// The notification point on, with 50 µs and DSCP 48; the reaction point
    /// [`Ecn`](CongestionAlgorithm::Ecn), 10 Gbit/s, 500 µs.
    fn default() -> Self {
        Self {
            np_enable: true,
            np_min_time_between_cnps: 50,
            np_cnp_dscp: 48,
            algorithm: CongestionAlgorithm::Ecn,
            dcqcn: DcqcnParameters::CONNECTX,
            line_rate: 10_000_000_000,
            swift_base_target: Duration::from_micros(500),
        }
    }
}
