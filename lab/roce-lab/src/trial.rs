//! Trials of lessons: flows of real engines over a fabric, sampled.

mod build;
mod figure;
mod flows;
mod plot;
mod statement;

use std::collections::BTreeMap;
use std::time::Duration;

use roce_fabric::CLASSES;
use roce_ring::{DataType, Operation, ReduceOp, RingConfig};
use roce_transport::Instant;
use roce_wire::{MacAddr, PfcFrame};

use self::build::{DATA_CLASS, Nodes};
use self::flows::Flows;
use crate::lesson::{FabricData, FaultData, LessonError, rule};
use crate::ring::{Ring, RingOptions};
use roce_simnet::World;

pub use figure::{Figure, Unit};
pub use plot::TrialPlot;
pub(crate) use plot::plot;
pub(crate) use statement::{check, fill};

/// A completed trial.
#[derive(Clone, Debug)]
pub struct TrialRun {
    /// Name.
    pub name: String,
    /// Figures by name.
    pub figures: BTreeMap<String, Figure>,
    /// Names of the flows.
    pub flows: Vec<String>,
    /// Names of the ports: the node, and the next one.
    pub ports: Vec<[String; 2]>,
    /// Rate of the links of the flows' senders in bits per second.
    pub line_rate: f64,
    /// Samples at equal distances.
    pub samples: Vec<TrialSample>,
    /// Changes of the rate to which congestion control limits each flow: time, and rate in bits per
    /// second or `None` for no limit.
    pub rate_changes: Vec<Vec<(Instant, Option<u64>)>>,
}

/// State of a trial at one time.
#[derive(Clone, Debug, PartialEq)]
pub struct TrialSample {
    /// Time.
    pub at: Instant,
    /// Rate of each flow that its congestion control allows, in bits per second; 0 before its start
    /// and after its end.
    pub rates: Vec<f64>,
    /// Bytes of payload that have arrived for each flow.
    pub arrived: Vec<u64>,
    /// Bytes of data that wait at each port of the switches.
    pub queues: Vec<u64>,
}

/// Most samples of a trial.
const MAX_SAMPLES: u32 = 1 << 20;

/// Runs a trial.
pub(crate) fn run(section: usize, name: &str, data: &FabricData) -> Result<TrialRun, LessonError> {
    let refused = |why: &dyn ToString| LessonError::Refused { section, why: why.to_string() };
    let (mut world, nodes) = build::world(section, data)?;
    for impaired in &data.impair {
        let host = nodes.host(&impaired.from)?;
        world.set_impairment(host, rule::impairment(&impaired.rules));
    }
    let mut flows = Flows::new(&mut world, &nodes, data)?;
    let mut ring = None;
    if let Some(bytes) = data.allreduce {
        ring = Some(build_ring(&mut world, data, bytes).map_err(|why| refused(&why))?);
    }
    if let Some(ring) = &mut ring {
        ring.start(&mut world).map_err(|why| refused(&why))?;
    }
    let mut faults = Faults::new(&nodes, data)?;
    let limit = Instant::default() + data.limit.duration();
    let sample = data.sample.duration().max(data.limit.duration() / MAX_SAMPLES);
    let sample = sample.max(Duration::from_nanos(1));
    let mut next_sample = Instant::default();
    let mut samples = Vec::new();
    let is_done = |flows: &Flows, ring: &Option<Ring>| match ring {
        Some(ring) => ring.done_at().is_some(),
        None => flows.are_finished(),
    };
    while !is_done(&flows, &ring) && world.now() < limit {
        flows.start_due(&mut world).map_err(|why| refused(&why))?;
        faults.begin_due(&mut world);
        if next_sample <= world.now() {
            samples.push(take_sample(&mut world, &flows, &nodes));
            next_sample = world.now() + sample;
        }
        let due = [Some(next_sample), Some(limit), flows.next_start(), faults.next()];
        let until = due.into_iter().flatten().min().unwrap_or(limit);
        while !is_done(&flows, &ring)
            && let Some(at) = world.next_event().filter(|at| *at <= until)
        {
            world.run_until(at);
            match &mut ring {
                Some(ring) => ring.progress(&mut world).map_err(|why| refused(&why))?,
                None => flows.progress(&mut world).map_err(|why| refused(&why))?,
            }
        }
        if !is_done(&flows, &ring) {
            world.run_until(until);
        }
    }
    if samples.last().is_some_and(|last: &TrialSample| last.at < world.now()) {
        samples.push(take_sample(&mut world, &flows, &nodes));
    }
    let mut figures = figure::of_world(&mut world, &samples);
    flows.figures(&mut figures);
    if let Some(ring) = &ring {
        for (rank, name) in data.hosts.iter().enumerate() {
            let done = ring.rank_done_at(rank).map_or(f64::INFINITY, |at| at.as_nanos() as f64);
            figures.insert(format!("{name}.time"), Figure::new(done, Unit::Nanos));
        }
        let done = ring.done_at().map_or(f64::INFINITY, |at| at.as_nanos() as f64);
        figures.insert("time".to_owned(), Figure::new(done, Unit::Nanos));
    }
    Ok(TrialRun {
        name: name.to_owned(),
        figures,
        flows: flows.names(),
        ports: nodes.port_names(),
        line_rate: data.rate.bits_per_sec() as f64,
        samples,
        rate_changes: flows.rate_changes(),
    })
}

fn build_ring(
    world: &mut World,
    data: &FabricData,
    bytes: u64,
) -> Result<Ring, crate::ring::RingError> {
    let ring_config = RingConfig { small_message_max: 0, ..RingConfig::default() };
    let connection = build::connection(data).unwrap_or_else(|_| crate::default_options());
    let options = RingOptions { ring_config, connection, keep_data: false };
    let operation = Operation::all_reduce(DataType::F32, ReduceOp::Sum, bytes / 4);
    Ring::build(world, operation, options)
}

fn take_sample(world: &mut World, flows: &Flows, nodes: &Nodes) -> TrialSample {
    let (at, rates, arrived) = (world.now(), flows.rates(world), flows.arrived(world));
    let queues = match world.fabric_mut() {
        Some(fabric) => {
            let queue = |port: &(usize, usize)| {
                let (node, link) = *port;
                fabric.switch(node).queue_bytes(fabric.port(node, link), DATA_CLASS)
            };
            nodes.ports.iter().map(queue).collect()
        }
        None => Vec::new(),
    };
    TrialSample { at, rates, arrived, queues }
}

/// Faults that are still to come, or last.
struct Faults {
    pending: Vec<(Instant, Fault)>,
    /// Distance between the pause frames of a storm.
    refresh: Duration,
}

#[derive(Clone, Copy)]
enum Fault {
    Storm { host: usize, until: Instant },
    Link { link: usize, up: bool },
}

impl Faults {
    fn new(nodes: &Nodes, data: &FabricData) -> Result<Self, LessonError> {
        let mut pending = Vec::new();
        for FaultData { at, until, storm, cut } in &data.faults {
            let start = Instant::default() + at.duration();
            let end = until.map(|until| Instant::default() + until.duration());
            if let Some(host) = storm {
                let until = end.unwrap_or(Instant::from_nanos(u64::MAX));
                pending.push((start, Fault::Storm { host: nodes.host(host)?, until }));
            }
            if let Some(link) = cut {
                let link = nodes.link(link)?;
                pending.push((start, Fault::Link { link, up: false }));
                pending.extend(end.map(|end| (end, Fault::Link { link, up: true })));
            }
        }
        let refresh = PfcFrame::duration(u16::MAX / 2, data.rate.bits_per_sec());
        Ok(Self { pending, refresh })
    }

    fn next(&self) -> Option<Instant> {
        self.pending.iter().map(|(at, _)| *at).min()
    }

    fn begin_due(&mut self, world: &mut World) {
        let now = world.now();
        let due = self.pending.extract_if(.., |(at, _)| *at <= now).collect::<Vec<_>>();
        let Some(fabric) = world.fabric_mut() else { return };
        for (_, fault) in due {
            match fault {
                Fault::Storm { host, until } => {
                    let is_over = now >= until;
                    let quanta = if is_over { 0 } else { u16::MAX };
                    let pause = PfcFrame::new(MacAddr([2, 0, 0, 0, 0, 9]));
                    fabric.send_pause(host, pause.with((DATA_CLASS % CLASSES) as u8, quanta));
                    if !is_over {
                        let again = (now + self.refresh).min(until);
                        self.pending.push((again, fault));
                    }
                }
                Fault::Link { link, up } => fabric.set_link(link, up),
            }
        }
    }
}
