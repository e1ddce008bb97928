//! What carries the frames of a world: links that lose nothing of their own accord, or a fabric.

use bytes::Bytes;
use roce_fabric::{
    EthernetFrame, Fabric, FabricConfig, FabricEvent, Impairment, Instant, LinkId, Network,
    NetworkStats, NodeId,
};
use roce_wire::MacAddr;

use crate::config::{FabricWorld, WorldConfig};

/// A frame that arrived.
pub(crate) struct Arrived {
    pub(crate) host: usize,
    /// The bytes of [`Outgoing`]; on a fabric those of the frame alone.
    pub(crate) bytes: Bytes,
}

/// A frame to send.
#[derive(Debug)]
pub(crate) struct Outgoing {
    /// Index of the destination.
    pub(crate) to: usize,
    /// The frame, and what goes with it on a link.
    pub(crate) bytes: Bytes,
    /// Length of the frame.
    pub(crate) frame_len: usize,
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
    /// Connects hosts with these addresses by links, as the configuration says.
    pub(crate) fn new(hosts: &[MacAddr], config: &WorldConfig) -> Self {
        let WorldConfig { link, wire_overhead, .. } = *config;
        if let Some(FabricWorld { topology, config, class_of_dscp }) = config.fabric.clone() {
            let config = FabricConfig { wire_overhead: wire_overhead as u64, ..config };
            let fabric = Box::new(Fabric::new(topology, config));
            return Self::Fabric { fabric, class_of_dscp };
        }
        let mut network = Network::new();
        let nodes: Vec<_> = hosts.iter().map(|_| network.add_host()).collect();
        let links = match nodes[..] {
            [alone] => vec![network.connect(alone, alone, link)],
            [a, b] if !config.always_switch => vec![network.connect(a, b, link); 2],
            _ => {
                let switch = network.add_switch();
                let lay = |(host, node): (&MacAddr, &NodeId)| {
                    let id = network.connect(switch, *node, link);
                    network.set_route(switch, host.0, id);
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

    /// Returns what became of the frames on the links.
    pub(crate) fn stats(&self) -> NetworkStats {
        match self {
            Self::Links { network, .. } => network.stats(),
            Self::Fabric { .. } => NetworkStats::default(),
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

    /// Moves the clock. Returns what arrived until then, and hosts whose link became free.
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
                        arrived.push(Arrived { host, bytes: arrival.bytes });
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
                            arrived.push(Arrived { host, bytes: frame.into_bytes() });
                        }
                        FabricEvent::Ready { host } => free.push(host),
                        // The fabric itself stops the queue.
                        FabricEvent::Paused { .. } => {}
                    }
                }
            }
        }
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
        let Outgoing { to, mut bytes, frame_len, traffic_class, flow_hash } = frame;
        match self {
            Self::Links { network, nodes, .. } => network.send(nodes[from], bytes),
            Self::Fabric { fabric, class_of_dscp } => {
                let class = class_of_dscp.iter().find(|it| it.0 == traffic_class >> 2);
                let class = class.map_or(0, |it| it.1);
                bytes.truncate(frame_len);
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
