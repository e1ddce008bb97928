//! Rails and lanes: devices, and the queue pairs to both neighbours.

use roce_ring::{Geometry, Side};
use roce_verbs::{ConnectOptions, Device, MemoryRegion, PathMtu, PortState, Qpn, RemoteAddr};

use crate::bootstrap::{LaneEndpoint, LaneOffer, LanePeer};
use crate::config::GroupConfig;
use crate::error::Error;
use crate::lane::Lane;
use crate::rail::{Rail, options};

/// All rails and lanes of a rank.
#[derive(Debug)]
pub(crate) struct Ring {
    // Lanes before rails: queue pairs are dropped before their completion queues.
    pub(crate) lanes: Vec<Lane>,
    pub(crate) rails: Vec<Rail>,
    /// Sorted by number: a search among these few is faster than a hash.
    by_qpn: Vec<(Qpn, (u32, Side))>,
}

impl Ring {
    /// Opens the interfaces, creates the queue pairs and posts all receives.
    pub(crate) fn open(config: &GroupConfig, geometry: &Geometry) -> Result<Self, Error> {
        let per_rail = config.qps_per_connection as usize;
        let completions = Lane::completions(geometry) as usize * per_rail;
        let rails: Vec<Rail> = interfaces(config)?
            .iter()
            .zip(0..)
            .map(|(interface, number)| Rail::open((number, interface), config, completions))
            .collect::<Result<_, _>>()?;
        let mut ring = Self { lanes: Vec::new(), rails, by_qpn: Vec::new() };
        for number in 0..geometry.lanes() {
            // Consecutive lanes are on different rails, so pieces use all rails in turn.
            let rail = number as usize % ring.rails.len();
            let lane = Lane::open(&ring.rails[rail], rail, config, geometry)?;
            let find = |side| (lane.queue_pair(side).number(), (number, side));
            ring.by_qpn.extend([Side::Next, Side::Previous].map(find));
            ring.lanes.push(lane);
        }
        ring.by_qpn.sort_unstable_by_key(|&(number, _)| number);
        Ok(ring)
    }

    /// Returns the description of one lane for the neighbours.
    pub(crate) fn offer(&self, number: u32, config: &GroupConfig) -> Result<LaneOffer, Error> {
        let lane = &self.lanes[number as usize];
        let span =
            |memory: &MemoryRegion| RemoteAddr { addr: memory.address(), rkey: memory.rkey() };
        let endpoint = |side, record: Option<&MemoryRegion>| -> Result<LaneEndpoint, Error> {
            let dest = lane.queue_pair(side).dest(config.gid_index)?;
            let staging = span(lane.staging(side));
            Ok(LaneEndpoint { dest, staging, record: record.map(span) })
        };
        let rail = &self.rails[lane.rail];
        let most = rail.device.port()?.active_mtu.unwrap_or(PathMtu::B256);
        Ok(LaneOffer {
            lane: number,
            mtu: config.path_mtu.map_or(most, |asked| asked.min(most)),
            gap_reports: config.device.max_reorder_bytes > 0,
            next: endpoint(Side::Next, Some(&lane.record))?,
            previous: endpoint(Side::Previous, None)?,
        })
    }

    /// Connects one lane in one direction.
    pub(crate) fn connect(
        &mut self,
        side: Side,
        peer: &LanePeer,
        config: &GroupConfig,
    ) -> Result<(), Error> {
        let Some(lane) = self.lanes.get_mut(peer.lane as usize) else {
            let problem = format!("lane {} does not exist", peer.lane);
            return Err(Error::Bootstrap { peer: "the bootstrap server".into(), problem });
        };
        let (path_mtu, gap_reports) = (Some(peer.mtu), peer.gap_reports);
        let options = ConnectOptions { path_mtu, gap_reports, ..options(config) };
        lane.set_remote_staging(side, peer.endpoint.staging);
        if let Some(record) = peer.endpoint.record {
            lane.previous_record = record;
        }
        Ok(lane.queue_pair(side).connect_from_init(&peer.endpoint.dest, &options)?)
    }

    /// Returns lane and side of a queue pair.
    pub(crate) fn find(&self, number: Qpn) -> Option<(u32, Side)> {
        let found = self.by_qpn.binary_search_by_key(&number, |&(number, _)| number);
        found.ok().map(|index| self.by_qpn[index].1)
    }

    /// Returns an interface that is down, if any.
    pub(crate) fn interface_down(&self) -> Option<&str> {
        let is_down =
            |rail: &&Rail| rail.device.port().is_ok_and(|port| port.state == PortState::Down);
        self.rails.iter().find(is_down).map(|rail| rail.device.interface())
    }

    /// Returns the registered bytes beyond the buffers.
    pub(crate) fn registered_bytes(&self) -> u64 {
        self.lanes.iter().map(Lane::registered_bytes).sum()
    }
}

/// Returns the requested interfaces, or else the first usable one.
fn interfaces(config: &GroupConfig) -> Result<Vec<String>, Error> {
    if !config.interfaces.is_empty() {
        return Ok(config.interfaces.clone());
    }
    let all = Device::list()?;
    let usable = all.iter().filter(|one| one.port.state == PortState::Active);
    let mut ranked: Vec<(bool, &str)> = usable
        .filter(|one| one.gids.iter().any(|row| row.usable))
        .map(|one| {
            let has_v4 = one.gids.iter().any(|row| row.usable && row.gid.ip().is_ipv4());
            (!has_v4, one.interface.name.as_str())
        })
        .collect();
    ranked.sort_by_key(|(without_v4, _)| *without_v4);
    match ranked.first() {
        Some((_, name)) => Ok(vec![(*name).to_owned()]),
        None => Err(Error::Config(
            "no interface is up and has an address; name one, or give one an address \
             (ip address add 10.0.0.1/24 dev eth0)"
                .into(),
        )),
    }
}
