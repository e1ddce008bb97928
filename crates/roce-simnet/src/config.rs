//! Configuration of a world.

use std::time::Duration;

use roce_fabric::{FabricConfig, Topology};
use roce_transport::EndpointConfig;

/// Configuration of a [`World`](crate::World).
#[derive(Clone, Debug)]
pub struct WorldConfig {
    /// One-way delay of a link. Two hosts share one link; of more hosts, each has a link to a switch,
    /// so a packet crosses two links.
    pub delay: Duration,
    /// Two hosts are connected through a switch, too.
    pub always_switch: bool,
    /// Rate of every link in bits per second and direction; `None` is unlimited.
    pub bits_per_sec: Option<u64>,
    /// Maximum number of packets of a train, at least 1. The network carries packets one by one.
    pub train_packets: usize,
    /// Keep a timeline, whose memory grows with each packet.
    pub keep_timeline: bool,
    /// Packets that are lost before they reach a link, by their places in the timeline.
    pub lost_packets: Vec<usize>,
    /// Traffic class of all packets but those for which the engine has another; the lower two bits are
    /// the ECN field.
    pub traffic_class: u8,
    /// Configuration of the engines.
    pub endpoint: EndpointConfig,
    /// A fabric instead of the links. Its hosts are those of the world, by index. A timeline does not
    /// know the arrivals on it.
    pub fabric: Option<FabricWorld>,
}

impl Default for WorldConfig {
    /// Delay of 1 µs, unlimited rate, trains of up to 16 packets, with a timeline, Not-ECT.
    fn default() -> Self {
        Self {
            delay: Duration::from_micros(1),
            always_switch: false,
            bits_per_sec: None,
            train_packets: 16,
            keep_timeline: true,
            lost_packets: Vec::new(),
            traffic_class: 0,
            endpoint: EndpointConfig::default(),
            fabric: None,
        }
    }
}

/// A fabric with an engine on each host.
#[derive(Clone, Debug)]
pub struct FabricWorld {
    /// Hosts, switches and links.
    pub topology: Topology,
    /// Switches, routes and losses.
    pub config: FabricConfig,
    /// Class of each DSCP, 0 to 7; of all others 0.
    pub class_of_dscp: Vec<(u8, usize)>,
}

/// Bytes of a frame on Ethernet that are not in a capture: preamble 8, frame check sequence 4, gap 12.
/// The simulation stores the packet's number in them.
pub const WIRE_OVERHEAD: usize = 24;
