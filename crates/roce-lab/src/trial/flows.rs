//! Flows of a trial: what the programs on its hosts do.

use std::collections::{BTreeMap, HashMap};

use roce_simnet::{Connection, End, RECV_CQ, Region, World};
use roce_transport::{
    AccessFlags, Completion, CompletionStatus, CqHandle, Instant, PostError, RecvWr, RemoteAddr,
    SendOperation, SendWr, SgList,
};
use roce_wire::Qpn;

use super::build::{Nodes, connection, out_of_range};
use super::figure::{Figure, Unit};
use crate::lesson::{FabricData, FlowData, LessonError};

/// Messages that a sender posts ahead.
const MAX_POSTED: u64 = 16;
/// Most messages of a flow.
const MAX_MESSAGES: u64 = 4000;

/// All flows of a trial.
///
/// Senders write messages by WRITEs. With grants, a receiver lets its senders write by a SEND of no
/// bytes for each message, in turn, and takes a WRITE with immediate as the end of the message.
pub(super) struct Flows {
    flows: Vec<Flow>,
    /// Flow and side of each queue pair.
    of_queue_pair: HashMap<(usize, Qpn), (usize, usize)>,
    grants: Option<Grants>,
}

struct Flow {
    name: String,
    ends: [End; 2],
    source: Region,
    target: Region,
    message: u32,
    messages: u64,
    start: Instant,
    is_started: bool,
    posted: u64,
    completed: u64,
    finished: Option<Instant>,
    has_failed: bool,
    rate: Option<u64>,
    rate_changes: Vec<(Instant, Option<u64>)>,
}

struct Grants {
    /// Messages that a receiver lets come at once.
    at_once: u32,
    /// Of each receiving host: messages that it let come, and the flow whose turn it is.
    hosts: Vec<(u32, usize)>,
    /// Messages granted to each flow.
    granted: Vec<u64>,
}

impl Flows {
    pub(super) fn new(
        world: &mut World,
        nodes: &Nodes,
        data: &FabricData,
    ) -> Result<Self, LessonError> {
        let options = connection(data)?;
        let mut flows = Vec::new();
        let mut of_queue_pair = HashMap::new();
        for (place, FlowData { name, from, to, bytes, message, start }) in
            data.flows.iter().enumerate()
        {
            let messages = bytes.div_ceil(u64::from((*message).max(1))).max(1);
            if messages > MAX_MESSAGES {
                return Err(out_of_range("the messages of a flow", messages));
            }
            let hosts = [nodes.host(from)?, nodes.host(to)?];
            let ends = Connection::open(world, hosts, options).ends;
            let length = u64::from(*message);
            let [source, target] = hosts
                .map(|host| world.host_mut(host).memory.register_unkept(length, AccessFlags::ALL));
            for (side, end) in ends.iter().enumerate() {
                of_queue_pair.insert((end.host, end.qpn), (place, side));
            }
            flows.push(Flow {
                name: if name.is_empty() { from.clone() } else { name.clone() },
                ends,
                source,
                target,
                message: *message,
                messages,
                start: Instant::default() + start.duration(),
                is_started: false,
                posted: 0,
                completed: 0,
                finished: None,
                has_failed: false,
                rate: None,
                rate_changes: Vec::new(),
            });
        }
        let grants = data.grants.map(|at_once| Grants {
            at_once: at_once.max(1),
            hosts: vec![(0, 0); data.hosts.len()],
            granted: vec![0; flows.len()],
        });
        let this = Self { flows, of_queue_pair, grants };
        if this.grants.is_some() {
            for flow in &this.flows {
                for end in flow.ends {
                    for _ in 0..flow.messages {
                        let receive = RecvWr::new(0, SgList::default());
                        world.post_recv(end, receive).map_err(|why| LessonError::Refused {
                            section: 0,
                            why: why.to_string(),
                        })?;
                    }
                }
            }
        }
        Ok(this)
    }

    pub(super) fn next_start(&self) -> Option<Instant> {
        self.flows.iter().filter(|flow| !flow.is_started).map(|flow| flow.start).min()
    }

    /// Starts the flows whose time has come.
    pub(super) fn start_due(&mut self, world: &mut World) -> Result<(), PostError> {
        for place in 0..self.flows.len() {
            let flow = &mut self.flows[place];
            if flow.is_started || flow.start > world.now() {
                continue;
            }
            flow.is_started = true;
            match &self.grants {
                Some(_) => self.grant(world, self.flows[place].ends[1].host)?,
                None => flow.post_ahead(world)?,
            }
        }
        Ok(())
    }

    /// Handles the completions of all hosts.
    pub(super) fn progress(&mut self, world: &mut World) -> Result<(), PostError> {
        for host in 0..world.hosts().len() {
            while let Some((cq, completion)) = world.host_mut(host).poll_completion() {
                self.complete(world, host, cq, &completion)?;
            }
        }
        let now = world.now();
        for flow in &mut self.flows {
            let rate = world.hosts()[flow.ends[0].host].rate_limit(flow.ends[0].qpn);
            if rate != flow.rate && flow.finished.is_none() {
                flow.rate = rate;
                flow.rate_changes.push((now, rate));
            }
        }
        Ok(())
    }

    fn complete(
        &mut self,
        world: &mut World,
        host: usize,
        cq: CqHandle,
        completion: &Completion,
    ) -> Result<(), PostError> {
        let Some(&(place, side)) = self.of_queue_pair.get(&(host, completion.qpn)) else {
            return Ok(());
        };
        let flow = &mut self.flows[place];
        if completion.status != CompletionStatus::Success {
            flow.has_failed = true;
            return Ok(());
        }
        match (side, cq == RECV_CQ) {
            // A message of the flow is acknowledged.
            (0, false) => {
                flow.completed += 1;
                if flow.completed == flow.messages {
                    flow.finished = Some(world.now());
                } else if self.grants.is_none() {
                    flow.post_ahead(world)?;
                }
            }
            (0, true) => flow.post(world, true)?,
            (_, true) => {
                if let Some(grants) = &mut self.grants {
                    grants.hosts[host].0 -= 1;
                }
                self.grant(world, host)?;
            }
            (_, false) => {}
        }
        Ok(())
    }

    /// Lets the next senders of a receiver write.
    fn grant(&mut self, world: &mut World, host: usize) -> Result<(), PostError> {
        let Self { flows, grants: Some(grants), .. } = self else { return Ok(()) };
        let count = flows.len();
        for _ in 0..count {
            if grants.hosts[host].0 >= grants.at_once {
                return Ok(());
            }
            let place = grants.hosts[host].1 % count;
            grants.hosts[host].1 = place + 1;
            let flow = &flows[place];
            let is_waiting = flow.is_started && grants.granted[place] < flow.messages;
            if flow.ends[1].host == host && is_waiting {
                grants.hosts[host].0 += 1;
                grants.granted[place] += 1;
                let operation = SendOperation::Send { immediate: None, invalidate: None };
                let work = SendWr::new(0, operation, SgList::default());
                world.post_send(flow.ends[1], work)?;
            }
        }
        Ok(())
    }

    /// Returns true if no flow will send any more.
    pub(super) fn are_finished(&self) -> bool {
        self.flows.iter().all(|flow| flow.finished.is_some() || flow.has_failed)
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.flows.iter().map(|flow| flow.name.clone()).collect()
    }

    pub(super) fn rate_changes(self) -> Vec<Vec<(Instant, Option<u64>)>> {
        self.flows.into_iter().map(|flow| flow.rate_changes).collect()
    }

    /// Returns the rates that congestion control allows.
    pub(super) fn rates(&self, world: &World) -> Vec<f64> {
        let line_rate = world.config().endpoint.congestion.line_rate;
        let rate = |flow: &Flow| {
            if !flow.is_started || flow.finished.is_some() || flow.has_failed {
                return 0.0;
            }
            let limit = world.hosts()[flow.ends[0].host].rate_limit(flow.ends[0].qpn);
            limit.unwrap_or(line_rate) as f64
        };
        self.flows.iter().map(rate).collect()
    }

    /// Returns the bytes of payload that arrived.
    pub(super) fn arrived(&self, world: &World) -> Vec<u64> {
        let arrived = |flow: &Flow| {
            let End { host, qpn } = flow.ends[1];
            world.hosts()[host].arrived_bytes(qpn)
        };
        self.flows.iter().map(arrived).collect()
    }

    /// Adds the figures of each flow and of all.
    pub(super) fn figures(&self, figures: &mut BTreeMap<String, Figure>) {
        let mut add = |name: String, value: f64, unit| {
            figures.insert(name, Figure::new(value, unit));
        };
        let (mut last, mut goodputs) = (0.0_f64, Vec::new());
        for flow in &self.flows {
            let name = &flow.name;
            let took = flow
                .finished
                .map_or(f64::INFINITY, |at| at.saturating_since(flow.start).as_nanos() as f64);
            let bits = flow.messages as f64 * f64::from(flow.message) * 8.0;
            let goodput = bits * 1e9 / took;
            add(format!("{name}.time"), took, Unit::Nanos);
            add(format!("{name}.rate"), goodput, Unit::BitsPerSec);
            for (place, (at, rate)) in flow.rate_changes.iter().enumerate().take(MAX_STEPS) {
                let rate = rate.map_or(f64::INFINITY, |rate| rate as f64);
                add(format!("{name}.limit-{}", place + 1), rate, Unit::BitsPerSec);
                let at = at.as_nanos() as f64;
                add(format!("{name}.limit-{}-at", place + 1), at, Unit::Nanos);
            }
            let end = flow.finished.map_or(f64::INFINITY, |at| at.as_nanos() as f64);
            last = last.max(end);
            goodputs.push(goodput);
        }
        let (sum, squares) =
            goodputs.iter().fold((0.0, 0.0), |(a, b), rate| (a + rate, b + rate * rate));
        let unfinished = self.flows.iter().filter(|flow| flow.finished.is_none()).count();
        add("time".to_owned(), last, Unit::Nanos);
        let failed = self.flows.iter().filter(|flow| flow.has_failed).count();
        add("failed".to_owned(), failed as f64, Unit::Count);
        add("unfinished".to_owned(), unfinished as f64, Unit::Count);
        add("fairness".to_owned(), sum * sum / (goodputs.len() as f64 * squares), Unit::Number);
    }
}

/// Most changes of a limit that are figures.
const MAX_STEPS: usize = 50;

impl Flow {
    /// Posts messages up to the number that a sender posts ahead.
    fn post_ahead(&mut self, world: &mut World) -> Result<(), PostError> {
        while self.posted < self.messages && self.posted - self.completed < MAX_POSTED {
            self.post(world, false)?;
        }
        Ok(())
    }

    fn post(&mut self, world: &mut World, is_notified: bool) -> Result<(), PostError> {
        let remote = RemoteAddr { addr: self.target.address, rkey: self.target.key };
        let immediate = is_notified.then_some([0; 4]);
        let operation = SendOperation::Write { remote, immediate };
        let work = SendWr::new(self.posted, operation, [self.source.piece(0, self.message)]);
        self.posted += 1;
        world.post_send(self.ends[0], work.signaled())
    }
}
