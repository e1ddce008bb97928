//! What a rank brings to its group.

use std::time::Duration;

use roce_ring::{Geometry, GeometryError, RingConfig};
use roce_verbs::{DeviceConfig, PathMtu};

/// How a rank joins a group.
///
/// ```
/// use roce_collectives::GroupConfig;
///
/// let config = GroupConfig {
///     interfaces: vec!["eth0".into(), "eth1".into()], // two rails
///     qps_per_connection: 2,
///     ..GroupConfig::new(1, 3, "10.0.0.1:29500")
/// };
/// assert_eq!(config.ring_config().lanes, 4);
/// ```
#[derive(Clone, Debug)]
pub struct GroupConfig {
    /// This rank, 0 .. `size`.
    pub rank: u32,
    /// How many ranks there are.
    pub size: u32,
    /// Where rank 0 listens for the others: `host:port`.
    pub root: String,
    /// The interfaces to use, one rail each. With none, the first that carries frames and
    /// has an address.
    pub interfaces: Vec<String>,
    /// Row of the GID table, on every interface; the default row when `None`.
    pub gid_index: Option<u8>,
    /// Queue pairs to each neighbour over each interface, 1 or more. All ranks alike.
    pub qps_per_connection: u32,
    /// Whether each piece is spread over all queue pairs. All ranks alike.
    pub split: bool,
    /// Staging slots per queue pair. All ranks alike.
    pub slots: u32,
    /// Bytes of a staging slot. All ranks alike.
    pub slot_bytes: u32,
    /// Up to how many bytes an operation goes the small way. All ranks alike.
    pub small_message_max: u32,
    /// Wait for an acknowledgement: 4.096 µs · 2^n. By default 0.27 s: with 7 retries a
    /// neighbour is given up after two seconds of silence. Losses are found much earlier.
    pub ack_timeout: u8,
    /// How often to send again after silence, 0..=7.
    pub retry_count: u8,
    /// IPv4 type of service or IPv6 traffic class.
    pub traffic_class: u8,
    /// The path MTU to offer; the largest that the interface carries when `None`.
    pub path_mtu: Option<PathMtu>,
    /// How devices are opened. With a [`trace`](DeviceConfig::trace), the group adds its own
    /// events to it: see [`Group::timeline`](crate::Group::timeline).
    pub device: DeviceConfig,
    /// How long ranks may take to arrive and to connect.
    pub timeout: Duration,
    /// How long a rank spins before it sleeps, whenever there is nothing to do. It gives its
    /// core away while it spins.
    pub spin: Duration,
    /// What all ranks must agree on besides: compared by name, `job.` is put in front.
    pub job: Vec<(String, String)>,
    /// How many step records to keep, the latest ones; 0: none are made.
    pub steps: usize,
}

/// The longest timeout: clocks count further than now plus this.
pub(crate) const MAX_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 3600);

impl GroupConfig {
    /// The defaults for `rank` of `size` that meet at `root`.
    pub fn new(rank: u32, size: u32, root: impl Into<String>) -> Self {
        let RingConfig { slots, slot_bytes, small_message_max, split, lanes } =
            RingConfig::for_ranks(size);
        Self {
            rank,
            size,
            root: root.into(),
            interfaces: Vec::new(),
            gid_index: None,
            qps_per_connection: lanes,
            split,
            slots,
            slot_bytes,
            small_message_max,
            ack_timeout: 16,
            retry_count: 7,
            traffic_class: 0,
            path_mtu: None,
            device: DeviceConfig::default(),
            timeout: Duration::from_secs(60),
            spin: Duration::from_micros(50),
            job: Vec::new(),
            steps: 0,
        }
    }

    /// The settings of the ring that follow.
    pub fn ring_config(&self) -> RingConfig {
        let rails = u32::try_from(self.interfaces.len().max(1)).unwrap_or(u32::MAX);
        RingConfig {
            lanes: rails.saturating_mul(self.qps_per_connection),
            slots: self.slots,
            slot_bytes: self.slot_bytes,
            small_message_max: self.small_message_max,
            split: self.split,
        }
    }

    /// This rank's place in that ring.
    ///
    /// # Errors
    /// VariableNames what is out of its range.
    pub fn geometry(&self) -> Result<Geometry, GeometryError> {
        Geometry::new(self.rank, self.size, self.ring_config())
    }
}
