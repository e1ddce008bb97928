//! Flows of messages between the hosts of a world: what the programs on them post.

use std::collections::HashMap;

use roce_simnet::{ConnectOptions, Connection, End, RECV_CQ, Region, World};
use roce_transport::{
    AccessFlags, CompletionStatus, Instant, PostError, RemoteAddr, SendOperation, SendWr,
};
use roce_wire::Qpn;

/// What a flow sends, from the first host to the second.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlowPlan {
    pub(crate) hosts: [usize; 2],
    pub(crate) bytes: u64,
    /// Bytes of a message; the last one has what is left.
    pub(crate) message: u32,
    pub(crate) start: Instant,
}

/// Flows of WRITEs, over a connection each.
pub(crate) struct Flows {
    flows: Vec<Flow>,
    /// Flow and side of each queue pair.
    of_queue_pair: HashMap<(usize, Qpn), (usize, usize)>,
    /// Flows that are still to start, the next one last.
    waiting: Vec<usize>,
    /// Number of flows that neither finished nor failed.
    unfinished: usize,
    /// Memory of each host, which all flows share.
    regions: Vec<Region>,
    /// Messages that a sender posts ahead.
    max_posted: u32,
}

pub(crate) struct Flow {
    pub(crate) plan: FlowPlan,
    pub(crate) ends: [End; 2],
    pub(crate) is_started: bool,
    posted: u64,
    /// Bytes of acknowledged messages.
    pub(crate) acknowledged: u64,
    outstanding: u32,
    pub(crate) finished: Option<Instant>,
    pub(crate) has_failed: bool,
    /// Messages that the receiver allows, each of which ends with an immediate; `None` for all.
    pub(crate) granted: Option<u64>,
}

/// A receive of a flow that completed: the flow, and the side, 1 for the receiver of its messages.
pub(crate) type Received = (usize, usize);

impl Flows {
    /// Connects all flows.
    pub(crate) fn new(
        world: &mut World,
        plans: impl IntoIterator<Item = FlowPlan>,
        options: ConnectOptions,
        max_posted: u32,
    ) -> Self {
        let mut of_queue_pair = HashMap::new();
        let mut flows = Vec::new();
        for (place, plan) in plans.into_iter().enumerate() {
            let ends = Connection::open(world, plan.hosts, options).ends;
            for (side, end) in ends.iter().enumerate() {
                of_queue_pair.insert((end.host, end.qpn), (place, side));
            }
            flows.push(Flow {
                plan,
                ends,
                is_started: false,
                posted: 0,
                acknowledged: 0,
                outstanding: 0,
                finished: None,
                has_failed: false,
                granted: None,
            });
        }
        let longest = flows.iter().map(|flow| flow.plan.message).max().unwrap_or(0);
        let hosts = world.hosts.len();
        let region = |host: usize| {
            world.hosts[host].memory.register_unkept(longest.into(), AccessFlags::ALL)
        };
        let regions = (0..hosts).map(region).collect();
        let mut waiting: Vec<_> = (0..flows.len()).collect();
        // Of those that start together, the first one is the last one here.
        waiting.sort_by_key(|place| std::cmp::Reverse((flows[*place].plan.start, *place)));
        let unfinished = flows.len();
        Self { flows, of_queue_pair, waiting, unfinished, regions, max_posted }
    }

    pub(crate) fn all(&self) -> &[Flow] {
        &self.flows
    }

    pub(crate) fn all_mut(&mut self) -> &mut [Flow] {
        &mut self.flows
    }

    /// Returns true if no flow will send any more.
    pub(crate) fn are_done(&self) -> bool {
        self.unfinished == 0
    }

    pub(crate) fn next_start(&self) -> Option<Instant> {
        self.waiting.last().map(|place| self.flows[*place].plan.start)
    }

    /// Starts the next flow whose time has come, and returns it.
    pub(crate) fn start_due(&mut self, world: &mut World) -> Result<Option<usize>, PostError> {
        let now = world.now();
        let Some(place) = self.waiting.pop_if(|it| self.flows[*it].plan.start <= now) else {
            return Ok(None);
        };
        self.flows[place].is_started = true;
        self.post(world, place)?;
        Ok(Some(place))
    }

    /// Handles the next completion of a host. Returns `None` without one, otherwise the receive that
    /// completed, if it was one.
    pub(crate) fn complete_next(
        &mut self,
        world: &mut World,
        host: usize,
    ) -> Result<Option<Option<Received>>, PostError> {
        let Some((cq, completion)) = world.hosts[host].poll_completion() else {
            return Ok(None);
        };
        let Some(&(place, side)) = self.of_queue_pair.get(&(host, completion.qpn)) else {
            return Ok(Some(None));
        };
        let flow = &mut self.flows[place];
        if completion.status != CompletionStatus::Success {
            let was_unfinished = !flow.has_failed && flow.finished.is_none();
            self.unfinished -= usize::from(was_unfinished);
            flow.has_failed = true;
            return Ok(Some(None));
        }
        if cq == RECV_CQ {
            return Ok(Some(Some((place, side))));
        }
        if side == 0 {
            flow.outstanding -= 1;
            flow.acknowledged += completion.wr_id;
            if flow.acknowledged == flow.plan.bytes {
                flow.finished = Some(world.now());
                self.unfinished -= usize::from(!flow.has_failed);
            }
            self.post(world, place)?;
        }
        Ok(Some(None))
    }

    /// Posts messages of a flow that the receiver allows, up to the number that a sender posts ahead. The
    /// number of a request is its length.
    pub(crate) fn post(&mut self, world: &mut World, place: usize) -> Result<(), PostError> {
        let flow = &mut self.flows[place];
        let (source, target) = (self.regions[flow.plan.hosts[0]], self.regions[flow.plan.hosts[1]]);
        let remote = RemoteAddr { addr: target.addr, rkey: target.key };
        while flow.posted < flow.plan.bytes
            && flow.outstanding < self.max_posted
            && flow.granted != Some(0)
            && !flow.has_failed
        {
            let length = (flow.plan.bytes - flow.posted).min(flow.plan.message.into());
            let immediate = flow.granted.is_some().then_some([0; 4]);
            flow.granted = flow.granted.map(|messages| messages - 1);
            let operation = SendOperation::Write { remote, immediate };
            let work = SendWr::new(length, operation, [source.piece(0, length as u32)]);
            world.post_send(flow.ends[0], work.signaled())?;
            flow.posted += length;
            flow.outstanding += 1;
        }
        Ok(())
    }

    /// Returns the rates in bits per second that congestion control allows the first `count` flows; 0
    /// before the start of a flow and after its end.
    pub(crate) fn rates(&self, world: &World, count: usize) -> Vec<f64> {
        let line_rate = world.config().endpoint.congestion.line_rate;
        let rate = |flow: &Flow| {
            if !flow.is_started || flow.finished.is_some() || flow.has_failed {
                return 0.0;
            }
            let limit = world.hosts[flow.ends[0].host].rate_limit(flow.ends[0].qpn);
            limit.unwrap_or(line_rate) as f64
        };
        self.flows.iter().take(count).map(rate).collect()
    }
}
