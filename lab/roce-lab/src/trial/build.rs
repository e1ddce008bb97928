//! The world of a trial.

use std::collections::HashMap;

use roce_fabric::{CLASSES, EcnMarking, FabricConfig, PfcConfig, Routing, SwitchConfig, Topology};
use roce_simnet::{ConnectOptions, FabricWorld, World, WorldConfig, default_options};
use roce_transport::congestion::{CongestionAlgorithm, CongestionConfig, DcqcnParameters};
use roce_transport::{AckTimeout, EndpointConfig, PeerWindowConfig, QpCap, WindowConfig};
use roce_wire::PathMtu;

use crate::lesson::{ControlName, FabricData, LessonError, Rate};

/// Class of data, the lossless one.
pub(super) const DATA_CLASS: usize = 3;
/// Bytes of Ethernet, IPv4, UDP, BTH, RETH, immediate and ICRC.
const MAX_HEADERS: u64 = 14 + 20 + 8 + 12 + 16 + 4 + 4;
/// Most frames in flight to one peer: a card has no receive ring that they must fit in.
const MAX_PEER_FRAMES: u32 = 1 << 16;
/// Most requests in a queue.
const MAX_REQUESTS: u32 = 4096;

/// Names of a trial's fabric.
pub(super) struct Nodes {
    section: usize,
    /// Node of each name.
    by_name: HashMap<String, usize>,
    names: Vec<String>,
    hosts: Vec<String>,
    /// Ends of each link.
    links: Vec<[usize; 2]>,
    /// Ports of the switches: node and link.
    pub(super) ports: Vec<(usize, usize)>,
}

impl Nodes {
    fn unknown(&self, what: &'static str, name: &str) -> LessonError {
        LessonError::Unknown { section: self.section, what, name: name.to_owned() }
    }

    fn node(&self, name: &str) -> Result<usize, LessonError> {
        self.by_name.get(name).copied().ok_or_else(|| self.unknown("node", name))
    }

    /// Returns the index of a host.
    pub(super) fn host(&self, name: &str) -> Result<usize, LessonError> {
        let place = self.hosts.iter().position(|host| host == name);
        place.ok_or_else(|| self.unknown("host", name))
    }

    /// Returns the index of the link between two named nodes.
    pub(super) fn link(&self, names: &str) -> Result<usize, LessonError> {
        let (a, b) = names.split_once(' ').unwrap_or((names, ""));
        let ends = [self.node(a)?, self.node(b)?];
        let place = self.links.iter().position(|it| *it == ends || *it == [ends[1], ends[0]]);
        place.ok_or_else(|| self.unknown("link", names))
    }

    pub(super) fn port_names(&self) -> Vec<[String; 2]> {
        let name = |(node, link): &(usize, usize)| {
            let ends = self.links[*link];
            let other = if ends[0] == *node { ends[1] } else { ends[0] };
            [self.names[*node].clone(), self.names[other].clone()]
        };
        self.ports.iter().map(name).collect()
    }
}

/// Builds the world of a trial.
pub(super) fn world(section: usize, data: &FabricData) -> Result<(World, Nodes), LessonError> {
    if !(2..=64).contains(&data.hosts.len()) {
        return Err(out_of_range("the number of hosts", data.hosts.len()));
    }
    let mut topology = Topology::new();
    let mut nodes = Nodes {
        section,
        by_name: HashMap::new(),
        names: data.hosts.iter().chain(&data.switches).cloned().collect(),
        hosts: data.hosts.clone(),
        links: Vec::new(),
        ports: Vec::new(),
    };
    for name in &data.hosts {
        nodes.by_name.insert(name.clone(), topology.add_host());
    }
    for name in &data.switches {
        nodes.by_name.insert(name.clone(), topology.add_switch());
    }
    let mut fastest = data.rate.bits_per_sec();
    for link in &data.links {
        let words: Vec<_> = link.split(' ').collect();
        let (a, b, rate) = match words[..] {
            [a, b] => (a, b, data.rate),
            [a, b, rate] => {
                let rate = rate.parse::<Rate>().map_err(|_| out_of_range("the rate of", link))?;
                (a, b, rate)
            }
            _ => return Err(out_of_range("a link", link)),
        };
        let ends = [nodes.node(a)?, nodes.node(b)?];
        let rate = rate.bits_per_sec();
        let id = topology.connect(ends[0], ends[1], rate, data.delay.duration());
        fastest = fastest.max(rate);
        let ports = ends.into_iter().filter(|node| topology.is_switch(*node));
        nodes.ports.extend(ports.map(|node| (node, id)));
        nodes.links.push(ends);
    }
    for [at, to, via] in &data.routes {
        let link = nodes.link(&format!("{at} {via}"))?;
        topology.fix_route(nodes.node(at)?, nodes.host(to)?, link);
    }
    let path_mtu = connection(data)?.path_mtu;
    let frame = path_mtu.bytes() as u64 + MAX_HEADERS;
    let mut switch = SwitchConfig {
        buffer_bytes: data.buffer,
        alpha: data.alpha,
        watchdog: data.watchdog.map(|it| it.duration()),
        ..SwitchConfig::default()
    };
    if let Some([kmin, kmax, percent]) = data.marking {
        let pmax = percent.min(100) as f64 / 100.0;
        switch.marking[DATA_CLASS] = Some(EcnMarking { kmin, kmax, pmax });
    }
    if data.pfc {
        let link = PfcConfig::for_link(DATA_CLASS, fastest, data.delay.duration(), frame);
        switch.pfc = Some(PfcConfig { xoff: data.xoff, ..link });
    }
    let config = FabricConfig {
        switch,
        routing: if data.spray { Routing::Spray } else { Routing::Ecmp },
        loss: data.loss,
        seed: data.seed,
        ..FabricConfig::default()
    };
    let class = |it: &[u8; 2]| (it[0], usize::from(it[1]) % CLASSES);
    let class_of_dscp = data.dscp_classes.iter().map(class).collect();
    let config = WorldConfig {
        keep_timeline: false,
        train_packets: 1,
        traffic_class: data.dscp << 2 | 0b10,
        endpoint: endpoint(data),
        fabric: Some(FabricWorld { topology, config, class_of_dscp }),
        ..WorldConfig::default()
    };
    Ok((World::new(&data.hosts, config), nodes))
}

fn endpoint(data: &FabricData) -> EndpointConfig {
    let initial_packets = data.window.max(1);
    EndpointConfig {
        max_reorder_bytes: if data.kept { 4 << 20 } else { 0 },
        window: WindowConfig {
            initial_packets,
            min_packets: data.least_window.clamp(1, initial_packets),
            max_packets: initial_packets,
            ..WindowConfig::default()
        },
        peer_window: PeerWindowConfig {
            initial_frames: MAX_PEER_FRAMES,
            max_frames: MAX_PEER_FRAMES,
            ..PeerWindowConfig::default()
        },
        congestion: CongestionConfig {
            np_min_time_between_cnps: data.cnp_interval,
            np_cnp_dscp: data.cnp_dscp,
            algorithm: match data.control {
                ControlName::Loss => CongestionAlgorithm::Loss,
                ControlName::Ecn => CongestionAlgorithm::Ecn,
                ControlName::Dcqcn => CongestionAlgorithm::Dcqcn,
                ControlName::Swift => CongestionAlgorithm::Swift,
            },
            dcqcn: DcqcnParameters::PAPER,
            line_rate: data.rate.bits_per_sec(),
            ..CongestionConfig::default()
        },
        ..EndpointConfig::default()
    }
}

/// Returns the attributes of a trial's connections.
pub(super) fn connection(data: &FabricData) -> Result<ConnectOptions, LessonError> {
    let path_mtu = PathMtu::from_bytes(data.path_mtu);
    let ack_timeout = AckTimeout::new(data.ack_timeout);
    Ok(ConnectOptions {
        gap_reports: data.reports,
        path_mtu: path_mtu.ok_or_else(|| out_of_range("path-mtu", data.path_mtu))?,
        ack_timeout: ack_timeout.ok_or_else(|| out_of_range("ack-timeout", data.ack_timeout))?,
        cap: QpCap { max_send_wr: MAX_REQUESTS, max_recv_wr: MAX_REQUESTS, ..QpCap::default() },
        ..default_options()
    })
}

pub(super) fn out_of_range(what: &'static str, value: impl ToString) -> LessonError {
    LessonError::OutOfRange { what, value: value.to_string() }
}
