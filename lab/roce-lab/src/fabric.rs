//! Flows of engines over a fabric with queues, marks and pauses: scenarios for the command line.

mod plot;
mod results;
mod run;
mod workload;

use std::time::Duration;

use roce_fabric::{EcnMarking, Topology};
use roce_transport::Instant;

pub use plot::plot_fabric;
pub use results::{FabricResults, FlowResult, QueueStats};
pub use run::FabricError;
pub use workload::{FlowSizes, FlowSpec};

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
}

/// What receivers do with packets behind a missing one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// Discard them; the sender starts again at the missing packet.
    GoBackN,
    /// Keep them and report the gap; the sender sends only what is missing.
    Keep,
}

/// Flows over a fabric, in virtual time.
///
/// ```
/// use roce_lab::{FabricControl, FabricScenario};
///
/// let scenario = FabricScenario { control: FabricControl::Dcqcn, ..FabricScenario::default() };
/// let report = scenario.simulate()?;
/// assert!(report.results.flows.iter().all(|flow| flow.finished.is_some()));
/// assert!(report.results.switches.marked_frames > 0);
/// # Ok::<(), roce_lab::FabricError>(())
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
    /// Path MTU in bytes.
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
    pub results: FabricResults,
    /// Rates, queues, marks and pauses at equal distances of time.
    pub samples: Vec<FabricSample>,
}

/// State of the fabric and of the first flows at one time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FabricSample {
    /// Time of the sample.
    pub at: Instant,
    /// Bytes of data in the longest queue of all switches.
    pub longest_queue: u64,
    /// Frames marked since the start.
    pub marked: u64,
    /// XOFF frames that switches sent since the start.
    pub xoff_sent: u64,
    /// Frames lost in switches since the start, with those that a watchdog dropped.
    pub dropped: u64,
    /// Bytes that hosts received since the start.
    pub delivered_bytes: u64,
    /// Rate of each of the first flows in bits per second that its congestion control allows; 0 before
    /// its start and after its end.
    pub rates: Vec<f64>,
}

/// Hosts of a leaf.
const HOSTS_PER_LEAF: usize = 4;
const SPINES: usize = 2;
const RING_SWITCHES: usize = 3;
/// Bytes of Ethernet, IPv4, UDP, BTH and ICRC.
const HEADERS: u32 = 14 + 20 + 8 + 12 + 4;

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
            FabricWorkload::Incast => workload::incast(hosts - 1, bytes),
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
            FabricWorkload::Permutation => workload::permutation(hosts, bytes, self.seed),
            FabricWorkload::AllToAll => workload::all_to_all(hosts, bytes),
            // The ring has connections of its own.
            FabricWorkload::RingAllreduce => Vec::new(),
            FabricWorkload::Sizes(sizes, load) => {
                // The last tenth of the time lets flows finish.
                let until = self.limit.mul_f64(0.9);
                let most = run::MAX_FLOWS + 1;
                workload::poisson(hosts, sizes, load, self.bits_per_sec, until, self.seed, most)
            }
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
}
