//! What the programs on the hosts of a scenario do: WRITEs of each flow, over a connection of its own.

use std::collections::HashMap;

use roce_simnet::{ConnectOptions, Connection, End, Region, World};
use roce_transport::{
    AccessFlags, CompletionStatus, Instant, PostError, RemoteAddr, SendOperation, SendWr,
};
use roce_wire::Qpn;

use super::{FlowResult, FlowSpec};

/// Bytes of a message; the last one of a flow has what is left.
const MESSAGE_BYTES: u64 = 64 << 10;
/// Messages that a sender posts ahead.
pub(super) const MAX_POSTED: u32 = 64;

/// All flows of a scenario.
pub(super) struct Flows {
    flows: Vec<Flow>,
    /// Flow of each sending queue pair.
    of_queue_pair: HashMap<(usize, Qpn), usize>,
    /// Flows that are still to start, the next one last.
    waiting: Vec<usize>,
    /// Flows that neither finished nor failed.
    unfinished: usize,
    /// Memory of each host, which all flows share.
    regions: Vec<Region>,
    options: ConnectOptions,
}

struct Flow {
    spec: FlowSpec,
    ends: Option<[End; 2]>,
    posted_bytes: u64,
    acknowledged_bytes: u64,
    outstanding: u32,
    finished: Option<Instant>,
    has_failed: bool,
}

impl Flows {
    pub(super) fn new(world: &mut World, specs: Vec<FlowSpec>, options: ConnectOptions) -> Self {
        let hosts = world.hosts().len();
        let region = |host| {
            let memory = &mut world.host_mut(host).memory;
            memory.register_unkept(MESSAGE_BYTES, AccessFlags::ALL)
        };
        let regions = (0..hosts).map(region).collect();
        let mut waiting: Vec<_> = (0..specs.len()).collect();
        waiting.sort_by_key(|flow| std::cmp::Reverse(specs[*flow].start));
        let flow = |spec| Flow {
            spec,
            ends: None,
            posted_bytes: 0,
            acknowledged_bytes: 0,
            outstanding: 0,
            finished: None,
            has_failed: false,
        };
        let unfinished = specs.len();
        let flows = specs.into_iter().map(flow).collect();
        Self { flows, of_queue_pair: HashMap::new(), waiting, unfinished, regions, options }
    }

    pub(super) fn are_done(&self) -> bool {
        self.unfinished == 0
    }

    pub(super) fn next_start(&self) -> Option<Instant> {
        self.waiting.last().map(|flow| self.flows[*flow].spec.start)
    }

    /// Connects and starts the flows whose time has come.
    pub(super) fn start_due(&mut self, world: &mut World) -> Result<(), PostError> {
        while let Some(place) = self.waiting.pop_if(|it| self.flows[*it].spec.start <= world.now())
        {
            let FlowSpec { from, to, .. } = self.flows[place].spec;
            let ends = Connection::open(world, [from, to], self.options).ends;
            self.of_queue_pair.insert((from, ends[0].qpn), place);
            self.flows[place].ends = Some(ends);
            self.post(world, place)?;
        }
        Ok(())
    }

    /// Handles the completions of all hosts.
    pub(super) fn progress(&mut self, world: &mut World) -> Result<(), PostError> {
        for host in 0..world.hosts().len() {
            while let Some((_, completion)) = world.host_mut(host).poll_completion() {
                let Some(&place) = self.of_queue_pair.get(&(host, completion.qpn)) else {
                    continue;
                };
                let flow = &mut self.flows[place];
                flow.outstanding -= 1;
                if completion.status != CompletionStatus::Success {
                    self.unfinished -= usize::from(!flow.has_failed);
                    flow.has_failed = true;
                    continue;
                }
                flow.acknowledged_bytes += completion.wr_id;
                if flow.acknowledged_bytes == flow.spec.bytes {
                    flow.finished = Some(world.now());
                    self.unfinished -= 1;
                }
                self.post(world, place)?;
            }
        }
        Ok(())
    }

    /// Posts messages of a flow up to the number that a sender posts ahead. The number of a request is
    /// its length.
    fn post(&mut self, world: &mut World, place: usize) -> Result<(), PostError> {
        let flow = &mut self.flows[place];
        let Some(ends) = flow.ends.filter(|_| !flow.has_failed) else { return Ok(()) };
        let (source, target) = (self.regions[flow.spec.from], self.regions[flow.spec.to]);
        let remote = RemoteAddr { addr: target.address, rkey: target.key };
        while flow.posted_bytes < flow.spec.bytes && flow.outstanding < MAX_POSTED {
            let length = (flow.spec.bytes - flow.posted_bytes).min(MESSAGE_BYTES);
            let data = [source.piece(0, length as u32)];
            let work = SendWr::new(length, SendOperation::write(remote), data);
            world.post_send(ends[0], work.signaled())?;
            flow.posted_bytes += length;
            flow.outstanding += 1;
        }
        Ok(())
    }

    /// Returns the rates in bits per second that congestion control allows the first `count` flows; 0
    /// before the start of a flow and after its end.
    pub(super) fn rates(&self, world: &World, count: usize) -> Vec<f64> {
        let line_rate = world.config().endpoint.congestion.line_rate;
        let rate = |flow: &Flow| match flow.ends {
            Some([End { host, qpn }, _]) if flow.finished.is_none() && !flow.has_failed => {
                world.hosts()[host].rate_limit(qpn).unwrap_or(line_rate) as f64
            }
            _ => 0.0,
        };
        self.flows.iter().take(count).map(rate).collect()
    }

    pub(super) fn results(&self) -> Vec<FlowResult> {
        let result = |flow: &Flow| FlowResult {
            spec: flow.spec,
            delivered: flow.acknowledged_bytes,
            finished: flow.finished,
        };
        self.flows.iter().map(result).collect()
    }
}
