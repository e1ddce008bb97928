//! Parameters that the standard leaves to an endpoint.

use crate::congestion::CongestionConfig;

/// Parameters that the standard leaves to an endpoint.
///
/// ```
/// use roce_transport::{EndpointConfig, WindowConfig};
/// let calm = EndpointConfig {
///     window: WindowConfig { max_packets: 64, ..WindowConfig::default() },
///     ..EndpointConfig::default()
/// };
/// assert!(calm.advertise_credits);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointConfig {
    /// Maximum packets of a train, beside the driver's own limit.
    pub max_train_packets: usize,
    /// Limits on what one queue pair has in flight.
    pub window: WindowConfig,
    /// Limits on what all queue pairs together have in flight to one peer.
    pub peer_window: PeerWindowConfig,
    /// Maximum bytes of packets that are kept since one before them is missing; 0: such packets are
    /// dropped. A queue pair keeps at most as many bytes as are left for others.
    pub max_reorder_bytes: usize,
    /// Congestion control.
    pub congestion: CongestionConfig,
    /// ACKs advertise credits, that is the number of receives posted.
    pub advertise_credits: bool,
}

/// Limits on what one queue pair has in flight: requests sent, and the outstanding responses of
/// READs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowConfig {
    /// Packets at the start, at least 1.
    pub initial_packets: u32,
    /// Minimum packets, to which losses may shrink the window; at least 1.
    pub min_packets: u32,
    /// Maximum packets, below half the PSN circle.
    pub max_packets: u32,
    /// Maximum bytes of payload. The smaller of the two limits counts.
    pub max_bytes: u32,
}

/// Limits on the frames that all queue pairs together have in flight to one peer, so that its receive
/// ring holds them. A train is one frame, or as many as it has packets where losses show that the
/// path segments it. A blocked queue pair waits in FIFO order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerWindowConfig {
    /// Frames at the start, at least 1.
    pub initial_frames: u32,
    /// Minimum frames, to which losses may shrink the window; at least 1.
    pub min_frames: u32,
    /// Maximum frames.
    pub max_frames: u32,
}

impl Default for EndpointConfig {
    fn default() -> Self {
        Self {
            max_train_packets: 64,
            window: WindowConfig::default(),
            peer_window: PeerWindowConfig::default(),
            max_reorder_bytes: 4 << 20,
            congestion: CongestionConfig::default(),
            advertise_credits: true,
        }
    }
}

impl Default for PeerWindowConfig {
    /// What a ring of 128 frames holds, and some to spare for other peers.
    fn default() -> Self {
        Self { initial_frames: 96, min_frames: 4, max_frames: 96 }
    }
}

impl Default for WindowConfig {
    /// 2 MiB at most: half of a receive ring of 64 slots of 64 KiB.
    fn default() -> Self {
        Self { initial_packets: 128, min_packets: 4, max_packets: 2048, max_bytes: 2 << 20 }
    }
}
