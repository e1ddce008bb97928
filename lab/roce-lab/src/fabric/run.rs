//! Runs a scenario: a world of engines on the fabric, its programs, and samples.

use std::time::Duration;

use roce_fabric::{FabricConfig, PfcConfig, Routing, SwitchConfig};
use roce_ring::{DataType, Operation, ReduceOp, RingConfig};
use roce_simnet::{ConnectOptions, FabricWorld, World, WorldConfig, default_options};
use roce_transport::congestion::{CongestionAlgorithm, CongestionConfig, DcqcnParameters};
use roce_transport::{
    AckTimeout, EndpointConfig, Instant, PeerWindowConfig, PostError, QpCap, WindowConfig,
};
use roce_wire::PathMtu;
use thiserror::Error;

use super::{
    FabricControl, FabricReport, FabricResults, FabricSample, FabricScenario, FabricWorkload,
    FlowResult, FlowSpec, HEADERS, QueueStats, Recovery,
};
use crate::flows::{Flow, FlowPlan, Flows};
use crate::ring::{Ring, RingError, RingOptions};

/// Most flows of a scenario; each has a connection of its own.
pub(super) const MAX_FLOWS: usize = 1 << 15;
/// Bytes of a message.
const MESSAGE_BYTES: u32 = 64 << 10;
/// Messages that a sender posts ahead.
const MAX_POSTED: u32 = 64;
/// Class of data.
const DATA_CLASS: usize = 3;
/// Class of CNPs.
const CONTROL_CLASS: usize = 6;
/// DSCP of data.
const DATA_DSCP: u8 = 26;
/// DSCP of CNPs.
const CNP_DSCP: u8 = 48;
/// ECN field of a packet that switches may mark.
const ECT_0: u8 = 0b10;
/// Packets and frames in flight, where nothing else limits them: those of the largest simulated queues.
const MAX_IN_FLIGHT: u32 = 1 << 16;
/// Bytes that a responder keeps behind a missing packet.
const MAX_KEPT_BYTES: usize = 16 << 20;
/// Samples of a run that lasts to its limit.
const SAMPLES: u32 = 4000;
/// Most flows whose rates are sampled.
const MAX_RATES: usize = 64;
/// Shortest ACK timeout.
const MIN_ACK_TIMEOUT: Duration = Duration::from_millis(1);

/// Error of a [`FabricScenario`].
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FabricError {
    /// There are too many flows.
    #[error(
        "the workload has more than {MAX_FLOWS} flows; use fewer hosts, less load or less time"
    )]
    TooManyFlows,
    /// The path MTU is none of the standard.
    #[error("a payload of {0} bytes is no path MTU; use 256, 512, 1024, 2048 or 4096")]
    PathMtu(u32),
    /// The allreduce cannot run.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// The engine refused a work request.
    #[error(transparent)]
    Post(#[from] PostError),
}

/// The programs on the hosts.
enum Programs {
    Flows(Flows),
    /// A ring, and the bytes that each rank sends.
    Ring(Box<Ring>, u64),
}

impl FabricScenario {
    /// Runs the scenario.
    ///
    /// # Errors
    /// [`FabricError`] if it cannot be built.
    pub fn simulate(&self) -> Result<FabricReport, FabricError> {
        let hosts = self.topology().hosts().len();
        let options = self.connection()?;
        let mut world = self.world(hosts);
        let mut programs = match self.workload {
            FabricWorkload::RingAllreduce => self.ring(&mut world, options)?,
            _ => {
                let specs = self.flows(hosts);
                if specs.len() > MAX_FLOWS {
                    return Err(FabricError::TooManyFlows);
                }
                let plans = specs.iter().map(|spec| FlowPlan {
                    hosts: [spec.from, spec.to],
                    bytes: spec.bytes,
                    message: MESSAGE_BYTES,
                    start: spec.start,
                });
                Programs::Flows(Flows::new(&mut world, plans, options, MAX_POSTED))
            }
        };
        let limit = Instant::default() + self.limit;
        let distance = (self.limit / SAMPLES).max(Duration::from_micros(1));
        let mut next_sample = Instant::default();
        let mut samples = Vec::new();
        while !programs.are_done() && world.now() < limit {
            programs.start_due(&mut world)?;
            if next_sample <= world.now() {
                samples.push(sample(&mut world, &programs));
                next_sample = world.now() + distance;
            }
            let until = programs.next_start().into_iter().chain([next_sample, limit]).min();
            world.run_to_next(until.unwrap_or(limit));
            programs.progress(&mut world)?;
        }
        let results = results(&mut world, &programs, &samples);
        Ok(FabricReport { scenario: *self, results, samples })
    }

    fn ring(&self, world: &mut World, options: ConnectOptions) -> Result<Programs, FabricError> {
        let ring_config = RingConfig { small_message_max: 0, ..RingConfig::default() };
        let options = RingOptions { ring_config, connection: options, keep_data: false };
        let elements = (self.bytes / 4).max(1);
        let operation = Operation::all_reduce(DataType::F32, ReduceOp::Sum, elements);
        let mut ring = Ring::build(world, operation, options)?;
        ring.start(world)?;
        let ranks = world.hosts.len() as u64;
        let chunk = (elements * 4).div_ceil(ranks);
        Ok(Programs::Ring(Box::new(ring), chunk * 2 * (ranks - 1)))
    }

    fn world(&self, hosts: usize) -> World {
        let names: Vec<_> = (0..hosts).map(|host| format!("host {host}")).collect();
        let config = FabricConfig {
            switch: self.switch(),
            routing: if self.spray { Routing::Spray } else { Routing::Ecmp },
            loss: self.loss,
            seed: self.seed,
            ..FabricConfig::default()
        };
        let class_of_dscp = vec![(DATA_DSCP, DATA_CLASS), (CNP_DSCP, CONTROL_CLASS)];
        let config = WorldConfig {
            keep_timeline: false,
            train_packets: 1,
            traffic_class: DATA_DSCP << 2 | ECT_0,
            endpoint: self.endpoint(),
            fabric: Some(FabricWorld { topology: self.topology(), config, class_of_dscp }),
            ..WorldConfig::default()
        };
        World::new(&names, config)
    }

    fn switch(&self) -> SwitchConfig {
        let frame = u64::from(self.payload + HEADERS);
        let mut switch = SwitchConfig {
            buffer_bytes: self.buffer,
            alpha: self.alpha,
            watchdog: self.watchdog,
            ..SwitchConfig::default()
        };
        let for_rate = roce_fabric::EcnMarking::for_rate(self.bits_per_sec);
        switch.marking = Default::default();
        switch.marking[DATA_CLASS] = Some(self.marking.unwrap_or(for_rate));
        if self.pfc {
            let pfc = PfcConfig::for_link(DATA_CLASS, self.bits_per_sec, self.delay, frame);
            switch.pfc = Some(pfc);
        }
        switch
    }

    /// Returns the configuration of the engines: as of a network card, which has no receive ring of
    /// frames.
    fn endpoint(&self) -> EndpointConfig {
        let (algorithm, dcqcn, cnp_micros) = match self.control {
            FabricControl::None => (CongestionAlgorithm::Loss, DcqcnParameters::PAPER, 50),
            FabricControl::DcqcnPaper => (CongestionAlgorithm::Dcqcn, DcqcnParameters::PAPER, 50),
            FabricControl::Dcqcn => (CongestionAlgorithm::Dcqcn, DcqcnParameters::CONNECTX, 4),
            FabricControl::Ecn => (CongestionAlgorithm::Ecn, DcqcnParameters::CONNECTX, 4),
            FabricControl::Swift => (CongestionAlgorithm::Swift, DcqcnParameters::CONNECTX, 4),
        };
        // A window that marks or delays change begins as that of the endpoint does.
        let initial_packets = match algorithm {
            CongestionAlgorithm::Loss | CongestionAlgorithm::Dcqcn => MAX_IN_FLIGHT,
            CongestionAlgorithm::Ecn | CongestionAlgorithm::Swift => {
                WindowConfig::default().initial_packets
            }
        };
        EndpointConfig {
            max_reorder_bytes: match self.recovery {
                Recovery::GoBackN => 0,
                Recovery::Keep => MAX_KEPT_BYTES,
            },
            window: WindowConfig {
                initial_packets,
                max_packets: MAX_IN_FLIGHT,
                max_bytes: u32::try_from(self.window).unwrap_or(u32::MAX),
                ..WindowConfig::default()
            },
            peer_window: PeerWindowConfig {
                initial_frames: MAX_IN_FLIGHT,
                max_frames: MAX_IN_FLIGHT,
                ..PeerWindowConfig::default()
            },
            congestion: CongestionConfig {
                np_min_time_between_cnps: cnp_micros,
                np_cnp_dscp: CNP_DSCP,
                algorithm,
                dcqcn,
                line_rate: self.bits_per_sec,
                swift_base_target: self.base_rtt() + Duration::from_micros(10),
                ..CongestionConfig::default()
            },
            ..EndpointConfig::default()
        }
    }

    fn connection(&self) -> Result<ConnectOptions, FabricError> {
        let path_mtu = PathMtu::from_bytes(self.payload as usize);
        let late = (2 * (self.base_rtt() + self.longest_queue())).max(MIN_ACK_TIMEOUT);
        let ack_timeout = (1..32)
            .filter_map(AckTimeout::new)
            .find(|it| it.duration().is_some_and(|it| it >= late));
        Ok(ConnectOptions {
            path_mtu: path_mtu.ok_or(FabricError::PathMtu(self.payload))?,
            ack_timeout: ack_timeout.unwrap_or(AckTimeout::NEVER),
            gap_reports: self.recovery == Recovery::Keep,
            cap: QpCap { max_send_wr: MAX_POSTED, ..default_options().cap },
            ..default_options()
        })
    }
}

impl Programs {
    fn are_done(&self) -> bool {
        match self {
            Self::Flows(flows) => flows.are_done(),
            Self::Ring(ring, _) => ring.done_at().is_some(),
        }
    }

    fn next_start(&self) -> Option<Instant> {
        match self {
            Self::Flows(flows) => flows.next_start(),
            Self::Ring(..) => None,
        }
    }

    fn start_due(&mut self, world: &mut World) -> Result<(), FabricError> {
        match self {
            Self::Flows(flows) => {
                while flows.start_due(world)?.is_some() {}
                Ok(())
            }
            Self::Ring(..) => Ok(()),
        }
    }

    fn progress(&mut self, world: &mut World) -> Result<(), FabricError> {
        match self {
            Self::Flows(flows) => {
                for host in 0..world.hosts.len() {
                    while flows.complete_next(world, host)?.is_some() {}
                }
                Ok(())
            }
            Self::Ring(ring, _) => Ok(ring.progress(world)?),
        }
    }

    fn results(&self, ranks: usize) -> Vec<FlowResult> {
        match self {
            Self::Flows(flows) => {
                let result = |flow: &Flow| {
                    let FlowPlan { hosts: [from, to], bytes, start, .. } = flow.plan;
                    let spec = FlowSpec { from, to, bytes, start };
                    FlowResult { spec, delivered: flow.acknowledged, finished: flow.finished }
                };
                flows.all().iter().map(result).collect()
            }
            Self::Ring(ring, bytes) => {
                let result = |rank| {
                    let finished = ring.rank_done_at(rank);
                    let spec = FlowSpec::new(rank, (rank + 1) % ranks, *bytes);
                    let delivered = if finished.is_some() { *bytes } else { 0 };
                    FlowResult { spec, delivered, finished }
                };
                (0..ranks).map(result).collect()
            }
        }
    }
}

fn sample(world: &mut World, programs: &Programs) -> FabricSample {
    let rates = match programs {
        Programs::Flows(flows) => flows.rates(world, MAX_RATES),
        Programs::Ring(..) => Vec::new(),
    };
    let at = world.now();
    let Some(fabric) = world.fabric_mut() else {
        return FabricSample { at, rates, ..Default::default() };
    };
    let switches = (0..fabric.topology().nodes()).filter(|it| fabric.topology().is_switch(*it));
    let queues = switches.flat_map(|node| {
        let switch = fabric.switch(node);
        (0..switch.ports()).map(|port| switch.queue_bytes(port, DATA_CLASS))
    });
    let longest_queue = queues.max().unwrap_or(0);
    let counters = fabric.switch_counters();
    FabricSample {
        at,
        longest_queue,
        marked: counters.marked_frames,
        xoff_sent: counters.xoff_sent,
        dropped: counters.dropped_frames + counters.discarded_frames,
        delivered_bytes: fabric.counters().delivered_bytes,
        rates,
    }
}

fn results(world: &mut World, programs: &Programs, samples: &[FabricSample]) -> FabricResults {
    let flows = programs.results(world.hosts.len());
    let sum = |counter: fn(&roce_transport::Counters) -> u64| -> u64 {
        world.hosts.iter().map(|host| counter(host.counters())).sum()
    };
    let (resent, cnps) = (sum(|it| it.resent_pkts), sum(|it| it.np_cnp_sent));
    let timeouts = sum(|it| it.ack_timeout);
    let time = world.now();
    let counters = world.fabric_mut().map(|it| (it.counters(), it.switch_counters()));
    let (fabric, switches) = counters.unwrap_or_default();
    let queue = QueueStats::of(samples.iter().map(|sample| sample.longest_queue).collect());
    FabricResults { time, flows, fabric, switches, queue, resent, cnps, timeouts }
}
