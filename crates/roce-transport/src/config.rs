//! How an endpoint behaves where the standard leaves a choice.

/// How an endpoint behaves where the standard leaves a choice.
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
    /// The longest train in packets, whatever a driver's limits say.
    pub max_train_packets: usize,
    /// How much of one queue pair may be on its way.
    pub window: WindowConfig,
    /// How much of all queue pairs may be on its way to one peer.
    pub peer_window: PeerWindowConfig,
    /// Tell the peer how many receives are posted; otherwise say that we do not count.
    pub advertise_credits: bool,
}

/// How much of one queue pair may be on its way unacknowledged: requests sent, and the
/// answers of READs asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowConfig {
    /// Packets at the start, at least 1.
    pub initial_packets: u32,
    /// Packets that losses never shrink the window below, at least 1.
    pub min_packets: u32,
    /// The most packets, below half the PSN circle.
    pub max_packets: u32,
    /// The most bytes of payload. What counts is the smaller of the two limits.
    pub max_bytes: u32,
}

/// How many frames of all queue pairs may be on their way to one peer: a peer's receive ring holds
/// so many frames, whoever sent them. A train is one frame, or as many as it has packets where losses
/// show that the path cuts it. A queue pair that may not send
/// for that reason stands in line behind those that came before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerWindowConfig {
    /// Frames at the start, at least 1.
    pub initial_frames: u32,
    /// Frames that losses never shrink the limit below, at least 1.
    pub min_frames: u32,
    /// The most frames.
    pub max_frames: u32,
}

impl Default for EndpointConfig {
    fn default() -> Self {
        Self {
            max_train_packets: 64,
            window: WindowConfig::default(),
            peer_window: PeerWindowConfig::default(),
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
