//! Flows over a fabric with queues, marks and pauses: scenarios for the command line.

mod plot;

use std::time::Duration;

use roce_fabric::{CLASSES, EcnMarking, FabricConfig, PfcConfig, Routing, SwitchConfig, Topology};
use roce_simnet::traffic::{
    self, CongestionModel, FlowSizes, FlowSpec, Recovery, Results, Simulation, SimulationConfig,
    TimelyParams, Trace,
};
use roce_transport::congestion::{DcqcnParameters, EcnParameters, SwiftParameters};

pub use plot::plot_fabric;

/// Hosts, switches and links of a [`FabricScenario`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FabricShape {
    /// Half of the hosts behind each of two switches, one link between them.
    Dumbbell,
    /// All hosts around one switch.
    Star,
    /// Four hosts on each leaf, two spines.
    LeafSpine,
    /// Three switches in a ring, which frames pass in one direction.
    Ring,
}

/// Flows of a [`FabricScenario`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FabricWorkload {
    /// All hosts to host 0.
    Incast,
    /// Host i to host i + N/2; in a ring, to a host two switches further.
    Pairs,
    /// Each host to one other at random.
    Permutation,
    /// Each host to each other.
    AllToAll,
    /// A ring allreduce of the bytes over all hosts.
    RingAllreduce,
    /// Random flows with published sizes that load the hosts' links to a share, for a time.
    Sizes(FlowSizes, f64),
}

/// Congestion control of a [`FabricScenario`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FabricControl {
    /// Line rate.
    None,
    /// DCQCN with the paper's parameters.
    DcqcnPaper,
    /// DCQCN with the defaults of ConnectX cards.
    Dcqcn,
    /// A window that reacts to marks.
    Ecn,
    /// A window that reacts to delay.
    Swift,
    /// Patched TIMELY.
    Timely,
}

/// Flows over a fabric, in virtual time.
///
/// ```
/// use roce_lab::{FabricControl, FabricScenario};
///
/// let scenario = FabricScenario { control: FabricControl::Dcqcn, ..FabricScenario::default() };
/// let report = scenario.simulate();
/// assert!(report.results.flows.iter().all(|flow| flow.finished.is_some()));
/// assert!(report.results.switches.marked_frames > 0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FabricScenario {
    /// Hosts, switches and links.
    pub shape: FabricShape,
    /// Number of hosts, at least 2; rounded up to what the shape needs.
    pub hosts: usize,
    /// Flows.
    pub workload: FabricWorkload,
    /// Bytes of each flow, or of the vector of an allreduce.
    pub bytes: u64,
    /// Congestion control.
    pub control: FabricControl,
    /// Bits per second of each link.
    pub bits_per_sec: u64,
    /// Propagation delay of each link.
    pub delay: Duration,
    /// Payload of a packet in bytes.
    pub payload: u32,
    /// Bytes of each switch's shared buffer.
    pub buffer: u64,
    /// Bytes that a queue may hold, as a multiple of the free bytes of the buffer.
    pub alpha: f64,
    /// ECN marking; by default in proportion to the rate.
    pub marking: Option<EcnMarking>,
    /// Data is lossless.
    pub pfc: bool,
    /// Watchdog of pauses.
    pub watchdog: Option<Duration>,
    /// Probability that a link loses a frame, 0 to 1.
    pub loss: f64,
    /// Reaction to lost packets.
    pub recovery: Recovery,
    /// Largest number of unacknowledged bytes of a flow, `u64::MAX` for none.
    pub window: u64,
    /// Every packet takes a random path.
    pub spray: bool,
    /// Seed of all random choices.
    pub seed: u64,
    /// Longest virtual time.
    pub limit: Duration,
}

impl Default for FabricScenario {
    /// An incast of 1 MB from each of 8 hosts but one around a switch, 100 Gbit/s, 1 µs, packets of
    /// 4096 bytes, 32 MB of buffer of whose free bytes a queue may hold an eighth, no congestion
    /// control, no PFC, go-back-N, at most 100 ms.
    fn default() -> Self {
        Self {
            shape: FabricShape::Star,
            hosts: 8,
            workload: FabricWorkload::Incast,
            bytes: 1_000_000,
            control: FabricControl::None,
            bits_per_sec: 100_000_000_000,
            delay: Duration::from_micros(1),
            payload: 4096,
            buffer: 32_000_000,
            alpha: 0.125,
            marking: None,
            pfc: false,
            watchdog: None,
            loss: 0.0,
            recovery: Recovery::GoBackN,
            window: u64::MAX,
            spray: false,
            seed: 1,
            limit: Duration::from_millis(100),
        }
    }
}

/// What a [`FabricScenario`] gave.
#[derive(Clone, Debug)]
pub struct FabricReport {
    /// The scenario.
    pub scenario: FabricScenario,
    /// Flows and counters.
    pub results: Results,
    /// Rates, queues, marks and pauses over time.
    pub trace: Trace,
}

/// Hosts of a leaf.
const HOSTS_PER_LEAF: usize = 4;
const SPINES: usize = 2;
const RING_SWITCHES: usize = 3;
/// Bytes of Ethernet, IPv4, UDP, BTH and ICRC.
const HEADERS: u32 = 14 + 20 + 8 + 12 + 4;
const DATA_CLASS: usize = 3;
/// Samples of a run that lasts to its limit.
const SAMPLES: u32 = 4000;

impl FabricScenario {
    /// Returns the topology.
    pub fn topology(&self) -> Topology {
        let (hosts, rate, delay) = (self.hosts.max(2), self.bits_per_sec, self.delay);
        match self.shape {
            FabricShape::Dumbbell => Topology::dumbbell(hosts.div_ceil(2), rate, delay),
            FabricShape::Star => Topology::star(hosts, rate, delay),
            FabricShape::LeafSpine => {
                let leaves = hosts.div_ceil(HOSTS_PER_LEAF);
                Topology::leaf_spine(leaves, SPINES, HOSTS_PER_LEAF, rate, delay)
            }
            FabricShape::Ring => {
                let per_switch = hosts.div_ceil(RING_SWITCHES);
                Topology::switch_ring(RING_SWITCHES, per_switch, rate, delay)
            }
        }
    }

    fn flows(&self, hosts: usize) -> Vec<FlowSpec> {
        let bytes = self.bytes;
        match self.workload {
            FabricWorkload::Incast => traffic::incast(hosts - 1, bytes),
            FabricWorkload::Pairs if self.shape == FabricShape::Ring => {
                let further = hosts / RING_SWITCHES * 2;
                (0..hosts)
                    .map(|from| FlowSpec::new(from, (from + further) % hosts, bytes))
                    .collect()
            }
            FabricWorkload::Pairs => {
                let half = hosts / 2;
                (0..half).map(|from| FlowSpec::new(from, from + half, bytes)).collect()
            }
            FabricWorkload::Permutation => traffic::permutation(hosts, bytes, self.seed),
            FabricWorkload::AllToAll => traffic::all_to_all(hosts, bytes),
            FabricWorkload::RingAllreduce => traffic::ring_allreduce(hosts, bytes),
            FabricWorkload::Sizes(sizes, load) => {
                // The last tenth of the time lets flows finish.
                let until = self.limit.mul_f64(0.9);
                traffic::poisson(hosts, sizes, load, self.bits_per_sec, until, self.seed)
            }
        }
    }

    fn switch(&self) -> SwitchConfig {
        let frame = u64::from(self.payload + HEADERS);
        let marking = self.marking.unwrap_or(EcnMarking::for_rate(self.bits_per_sec));
        let mut switch = SwitchConfig {
            buffer_bytes: self.buffer,
            alpha: self.alpha,
            watchdog: self.watchdog,
            ..SwitchConfig::default()
        };
        switch.marking = [None; CLASSES];
        switch.marking[DATA_CLASS] = Some(marking);
        if self.pfc {
            let pfc = PfcConfig::for_link(DATA_CLASS, self.bits_per_sec, self.delay, frame);
            switch.pfc = Some(pfc);
        }
        switch
    }

    fn congestion(&self) -> (CongestionModel, Duration) {
        let packet = u64::from(self.payload);
        let (paper, card) = (Duration::from_micros(50), Duration::from_micros(4));
        match self.control {
            FabricControl::None => (CongestionModel::None, paper),
            FabricControl::DcqcnPaper => (CongestionModel::Dcqcn(DcqcnParameters::PAPER), paper),
            FabricControl::Dcqcn => (CongestionModel::Dcqcn(DcqcnParameters::CONNECTX), card),
            FabricControl::Ecn => {
                let parameters =
                    EcnParameters { packet, min_window: packet, ..EcnParameters::default() };
                (CongestionModel::Ecn(parameters), card)
            }
            FabricControl::Swift => {
                let parameters = SwiftParameters {
                    base_target: self.base_rtt() + Duration::from_micros(10),
                    packet,
                    ..SwiftParameters::default()
                };
                (CongestionModel::Swift(parameters), card)
            }
            FabricControl::Timely => (CongestionModel::Timely(TimelyParams::default()), card),
        }
    }

    /// Returns the RTT of the longest path without a queue.
    fn base_rtt(&self) -> Duration {
        let hops = match self.shape {
            FabricShape::Star => 2,
            FabricShape::Dumbbell => 3,
            FabricShape::LeafSpine | FabricShape::Ring => 4,
        };
        let bits = f64::from(self.payload + HEADERS + 2 * 64) * 8.0;
        hops * (2 * self.delay + Duration::from_secs_f64(bits / self.bits_per_sec as f64))
    }

    /// Returns the time in which a switch sends what its buffer may hold for one link.
    fn longest_queue(&self) -> Duration {
        Duration::from_secs_f64(self.buffer as f64 * 8.0 / self.bits_per_sec.max(1) as f64)
    }

    /// Runs the scenario.
    pub fn simulate(&self) -> FabricReport {
        let topology = self.topology();
        let flows = self.flows(topology.hosts().len());
        let (congestion, cnp_interval) = self.congestion();
        let reordering = if self.spray { 3 * u64::from(self.hosts as u32) } else { 0 };
        let config = SimulationConfig {
            fabric: FabricConfig {
                switch: self.switch(),
                routing: if self.spray { Routing::Spray } else { Routing::Ecmp },
                loss: self.loss,
                seed: self.seed,
                ..FabricConfig::default()
            },
            congestion,
            payload: self.payload.max(1),
            headers: HEADERS,
            cnp_interval,
            recovery: self.recovery,
            window: self.window,
            reordering,
            base_rtt: self.base_rtt(),
            first_timeout: self.base_rtt().max(self.longest_queue()),
            sample: (self.limit / SAMPLES).max(Duration::from_micros(1)),
            ..SimulationConfig::default()
        };
        let mut simulation = Simulation::new(topology, config, flows);
        let results = simulation.run(self.limit);
        FabricReport { scenario: *self, results, trace: simulation.trace().clone() }
    }
}
