//! The configuration of a rank.

use std::time::Duration;

use roce_ring::{Geometry, GeometryError, RingConfig};
use roce_verbs::{DeviceConfig, PathMtu};

use crate::interrupt::Interrupt;
use crate::wait_notice::WaitNotice;

/// The configuration with which a rank joins a group.
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
    /// The number of ranks.
    pub size: u32,
    /// The address on which rank 0 listens: `host:port`.
    pub root: String,
    /// The interfaces to use, one rail each; if empty, the first that is up and has an address.
    pub interfaces: Vec<String>,
    /// Row of the GID table on every interface; `None` for the default row.
    pub gid_index: Option<u8>,
    /// Queue pairs to each neighbour over each interface, 1 or more. The same on all ranks.
    pub qps_per_connection: u32,
    /// True to spread each piece over all queue pairs. The same on all ranks.
    pub split: bool,
    /// Staging slots per queue pair. The same on all ranks.
    pub slots: u32,
    /// Bytes of a staging slot. The same on all ranks.
    pub slot_bytes: u32,
    /// The most bytes of an operation that uses the small-message algorithm. The same on all ranks.
    pub small_message_max: u32,
    /// The ACK timeout n: 4.096 µs · 2^n, by default 0.27 s. With 7 retries a neighbour that does
    /// not respond fails after two seconds. Losses are detected much earlier.
    pub ack_timeout: u8,
    /// The number of retries after ACK timeouts, 0..=7.
    pub retry_count: u8,
    /// IPv4 type of service or IPv6 traffic class.
    pub traffic_class: u8,
    /// The path MTU to offer; `None` for the largest that the interface carries.
    pub path_mtu: Option<PathMtu>,
    /// The configuration of the devices. With a [`trace`](DeviceConfig::trace),
    /// [`Group::timeline`](crate::Group::timeline) combines its events with those of the group.
    pub device: DeviceConfig,
    /// The timeout for all ranks to arrive, and again to connect.
    pub timeout: Duration,
    /// The time that an idle rank spins before it sleeps. It yields its core while it spins. The default,
    /// 300 µs, is longer than the message of a slot takes at 5 Gbit/s: a rank that slept while one is under
    /// way would be woken by each of its frames.
    pub spin: Duration,
    /// Other values that all ranks must share, sent and compared as `job.<name>`.
    pub job: Vec<(String, String)>,
    /// The number of latest step records to keep; 0 disables them.
    pub steps: usize,
    /// Asked about every 100 ms while this rank waits, whether it is to give up.
    pub interrupt: Interrupt,
    /// Told for which ranks this one waits while the group forms.
    pub wait_notice: WaitNotice,
    /// The timeout of each operation, and of leaving; `None` to wait for as long as it takes. The error names
    /// the rank that was waited for. Waiting ranks look every 100 ms.
    pub operation_timeout: Option<Duration>,
}

/// The longest timeout; a clock does not overflow with it.
pub(crate) const MAX_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 3600);

impl GroupConfig {
    /// Returns the defaults for `rank` of `size` with the root address `root`.
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
            spin: Duration::from_micros(300),
            job: Vec::new(),
            steps: 0,
            interrupt: Interrupt::never(),
            wait_notice: WaitNotice::silent(),
            operation_timeout: None,
        }
    }

    /// Returns the resulting configuration of the ring.
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

    /// Returns this rank's position in the ring.
    ///
    /// # Errors
    /// [`GeometryError`] names the value that is out of range.
    pub fn geometry(&self) -> Result<Geometry, GeometryError> {
        Geometry::new(self.rank, self.size, self.ring_config())
    }
}
