//! What carries the frames of a world: links that lose nothing of their own accord, or a fabric.

use bytes::Bytes;
use roce_fabric::{
    EthernetFrame, Fabric, FabricConfig, FabricEvent, Impairment, Instant, LinkConfig, LinkId,
    Network, NodeId,
};

use crate::config::{FabricWorld, WIRE_OVERHEAD, WorldConfig};
use crate::host::Host;

/// A frame that arrived.
pub(crate) struct Arrived {
    pub(crate) host: usize,
    pub(crate) frame: Bytes,
    /// Number of the packet in the timeline, if it is known.
    pub(crate) number: Option<usize>,
}

/// A frame to send.
pub(crate) struct Outgoing {
    /// Index of the destination.
    pub(crate) to: usize,
    /// The frame, and [`WIRE_OVERHEAD`] bytes that begin with its number in the timeline.
    pub(crate) bytes: Bytes,
    pub(crate) traffic_class: u8,
    pub(crate) flow_hash: u64,
}

#[derive(Debug)]
pub(crate) enum Carrier {
    Links { network: Network, nodes: Vec<NodeId>, links: Vec<LinkId> },
    Fabric { fabric: Box<Fabric<EthernetFrame>>, class_of_dscp: Vec<(u8, usize)> },
}

/// A host of a fabric hands over no more while so many bytes wait in a paused queue.
const MAX_WAITING_BYTES: u64 = 16 << 10;

impl Carrier {
    /// Connects the hosts by links, as the configuration says.
    pub(crate) fn new(hosts: &[Host], config: &WorldConfig) -> Self {
        if let Some(FabricWorld { topology, config, class_of_dscp }) = config.fabric.clone() {
            let config = FabricConfig { wire_overhead: WIRE_OVERHEAD as u64, ..config };
            let fabric = Box::new(Fabric::new(topology, config));
            return Self::Fabric { fabric, class_of_dscp };
        }
        let mut network = Network::new();
        let link = LinkConfig {
            latency: config.delay,
            bits_per_sec: config.bits_per_sec,
            queue_frames: usize::MAX,
        };
        let nodes: Vec<_> = hosts.iter().map(|_| network.add_host()).collect();
        let links = match nodes[..] {
            [a, b] if !config.always_switch => vec![network.connect(a, b, link); 2],
            _ => {
                let switch = network.add_switch();
                let lay = |(host, node): (&Host, &NodeId)| {
                    let id = network.connect(switch, *node, link);
                    network.set_route(switch, host.mac.0, id);
                    id
                };
                hosts.iter().zip(&nodes).map(lay).collect()
            }
        };
        Self::Links { network, nodes, links }
    }

    pub(crate) fn now(&self) -> Instant {
        match self {
            Self::Links { network, .. } => network.now(),
            Self::Fabric { fabric, .. } => fabric.now(),
        }
    }

    pub(crate) fn set_impairment(&mut self, host: usize, impairment: Impairment) {
        if let Self::Links { network, nodes, links } = self {
            network.set_impairment(links[host], nodes[host], impairment);
        }
    }

    /// Returns true if no frame is in flight.
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::Links { network, .. } => network.in_flight() == 0,
            Self::Fabric { fabric, .. } => fabric.next_event().is_none(),
        }
    }

    pub(crate) fn next_event(&self) -> Option<Instant> {
        match self {
            Self::Links { network, .. } => network.next_event(),
            // The fabric counts picoseconds; at the end of a nanosecond all of it has happened.
            Self::Fabric { fabric, .. } => {
                fabric.next_event().map(|at| Instant::from_nanos(at.as_nanos() + 1))
            }
        }
    }

    /// Moves the clock. Returns what arrived until then, by host, and hosts whose link became free.
    pub(crate) fn advance_to(&mut self, time: Instant) -> (Vec<Arrived>, Vec<usize>) {
        self.advance(time, false)
    }

    /// Moves the clock until something concerns a host, at most to `time`; otherwise as
    /// [`advance_to`](Self::advance_to). Links do not stop before `time`.
    pub(crate) fn advance_to_news(&mut self, time: Instant) -> (Vec<Arrived>, Vec<usize>) {
        self.advance(time, true)
    }

    fn advance(&mut self, mut time: Instant, is_next_enough: bool) -> (Vec<Arrived>, Vec<usize>) {
        let (mut arrived, mut free) = (Vec::new(), Vec::new());
        match self {
            Self::Links { network, nodes, .. } => {
                network.advance_to(time);
                for (host, node) in nodes.iter().enumerate() {
                    while let Some(arrival) = network.receive(*node) {
                        let (frame, number) = split_number(arrival.bytes);
                        arrived.push(Arrived { host, frame, number });
                    }
                }
            }
            Self::Fabric { fabric, .. } => {
                while let Some(event) = fabric.step(time) {
                    if is_next_enough {
                        // At the end of a nanosecond all of it has happened.
                        time = time.min(Instant::from_nanos(fabric.now().as_nanos() + 1));
                    }
                    match event {
                        FabricEvent::Arrived { host, frame } => {
                            let frame = frame.into_bytes();
                            arrived.push(Arrived { host, frame, number: None });
                        }
                        FabricEvent::Ready { host } => free.push(host),
                        // The fabric itself stops the queue.
                        FabricEvent::Paused { .. } => {}
                    }
                }
            }
        }
        arrived.sort_by_key(|it| it.host);
        (arrived, free)
    }

    /// Returns true if the host's engine may send now. Links tell nothing of that.
    pub(crate) fn takes(&self, host: usize) -> bool {
        match self {
            Self::Links { .. } => true,
            Self::Fabric { fabric, .. } => {
                fabric.waiting_bytes(host).is_some_and(|bytes| bytes < MAX_WAITING_BYTES)
            }
        }
    }

    /// Sends a frame.
    pub(crate) fn send(&mut self, from: usize, frame: Outgoing) {
        let Outgoing { to, mut bytes, traffic_class, flow_hash } = frame;
        match self {
            Self::Links { network, nodes, .. } => network.send(nodes[from], bytes),
            Self::Fabric { fabric, class_of_dscp } => {
                let class = class_of_dscp.iter().find(|it| it.0 == traffic_class >> 2);
                let class = class.map_or(0, |it| it.1);
                bytes.truncate(bytes.len() - WIRE_OVERHEAD);
                fabric.send(from, EthernetFrame::new(bytes, traffic_class, class, to, flow_hash));
            }
        }
    }

    /// Returns the fabric, if there is one.
    pub(crate) fn fabric(&mut self) -> Option<&mut Fabric<EthernetFrame>> {
        match self {
            Self::Links { .. } => None,
            Self::Fabric { fabric, .. } => Some(fabric),
        }
    }
}

/// Returns the frame, and its number in the timeline.
fn split_number(bytes: Bytes) -> (Bytes, Option<usize>) {
    let at = bytes.len().saturating_sub(WIRE_OVERHEAD);
    let number = bytes[at..].first_chunk().map(|number| u64::from_be_bytes(*number) as usize);
    (bytes.slice(..at), number)
}
