//! Configuration of a world.

use roce_fabric::{FabricConfig, LinkConfig, Topology};
use roce_transport::EndpointConfig;

/// Configuration of a [`World`](crate::World).
#[derive(Clone, Debug)]
pub struct WorldConfig {
    /// Every link. Two hosts share one link; of more hosts, each has a link to a switch, so a packet
    /// crosses two links. A single host is linked to itself.
    pub link: LinkConfig,
    /// Two hosts are connected through a switch, too.
    pub always_switch: bool,
    /// An engine transmits only while its link is free, as with a network card. Otherwise its frames
    /// wait in the queue of the link.
    pub waits_for_link: bool,
    /// Bytes of a frame on a link beside those of a capture. The timeline knows arrivals if there are 8 or
    /// more, since they carry the packet's number.
    pub wire_overhead: usize,
    /// Addresses are those of IPv6.
    pub ipv6: bool,
    /// Maximum number of packets of a train, at least 1.
    pub train_packets: usize,
    /// Links carry a train as one frame, otherwise its packets one by one, as a fabric does.
    pub whole_trains: bool,
    /// Maximum number of frames that an engine handles before it transmits.
    pub batch: usize,
    /// Timers are handled between batches, too.
    pub timers_between_batches: bool,
    /// Every engine is asked at every event for its timers and packets, not only when its own timer or
    /// link calls for that.
    pub eager: bool,
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
            link: LinkConfig::default(),
            always_switch: false,
            waits_for_link: true,
            wire_overhead: WIRE_OVERHEAD,
            ipv6: false,
            train_packets: 16,
            whole_trains: false,
            batch: usize::MAX,
            timers_between_batches: false,
            eager: false,
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
pub const WIRE_OVERHEAD: usize = 24;
