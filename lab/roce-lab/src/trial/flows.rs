//! Flows of a trial: what the programs on its hosts do.

use std::collections::BTreeMap;

use roce_simnet::{End, World};
use roce_transport::{Instant, PostError, RecvWr, SendOperation, SendWr, SgList};

use super::build::{Nodes, connection, out_of_range};
use super::figure::{Figure, Unit};
use crate::flows::{self, FlowPlan, Received};
use crate::lesson::{FabricData, FlowData, LessonError};

/// Messages that a sender posts ahead.
const MAX_POSTED: u32 = 16;
/// Most messages of a flow.
const MAX_MESSAGES: u64 = 4000;

/// All flows of a trial.
///
/// Senders write messages by WRITEs. With grants, a receiver lets its senders write by a SEND of no
/// bytes for each message, in turn, and takes a WRITE with immediate as the end of the message.
pub(super) struct Flows {
    flows: flows::Flows,
    /// Name of each flow.
    names: Vec<String>,
    /// Changes of the rate to which congestion control limits each flow.
    rate_changes: Vec<Vec<(Instant, Option<u64>)>>,
    grants: Option<Grants>,
}

struct Grants {
    /// Messages that a receiver lets come at once.
    at_once: u32,
    /// Of each receiving host: messages that it let come, and the flow whose turn it is.
    hosts: Vec<(u32, usize)>,
    /// Messages still to be granted to each flow.
    left: Vec<u64>,
}

impl Flows {
    pub(super) fn new(
        world: &mut World,
        nodes: &Nodes,
        data: &FabricData,
    ) -> Result<Self, LessonError> {
        let (mut plans, mut names, mut left) = (Vec::new(), Vec::new(), Vec::new());
        for FlowData { name, from, to, bytes, message, start } in &data.flows {
            let message = (*message).max(1);
            let messages = bytes.div_ceil(message.into()).max(1);
            if messages > MAX_MESSAGES {
                return Err(out_of_range("the messages of a flow", messages));
            }
            plans.push(FlowPlan {
                hosts: [nodes.host(from)?, nodes.host(to)?],
                bytes: messages * u64::from(message),
                message,
                start: Instant::default() + start.duration(),
            });
            names.push(if name.is_empty() { from.clone() } else { name.clone() });
            left.push(messages);
        }
        let rate_changes = vec![Vec::new(); plans.len()];
        let mut flows = flows::Flows::new(world, plans, connection(data)?, MAX_POSTED);
        let Some(at_once) = data.grants else {
            return Ok(Self { flows, names, rate_changes, grants: None });
        };
        for (flow, messages) in flows.all_mut().iter_mut().zip(&left) {
            flow.granted = Some(0);
            for end in flow.ends {
                for _ in 0..*messages {
                    let receive = RecvWr::new(0, SgList::default());
                    world
                        .post_recv(end, receive)
                        .map_err(|why| LessonError::Refused { section: 0, why: why.to_string() })?;
                }
            }
        }
        let hosts = vec![(0, 0); data.hosts.len()];
        let grants = Some(Grants { at_once: at_once.max(1), hosts, left });
        Ok(Self { flows, names, rate_changes, grants })
    }

    pub(super) fn next_start(&self) -> Option<Instant> {
        self.flows.next_start()
    }

    /// Starts the flows whose time has come.
    pub(super) fn start_due(&mut self, world: &mut World) -> Result<(), PostError> {
        while let Some(place) = self.flows.start_due(world)? {
            self.grant(world, self.flows.all()[place].ends[1].host)?;
        }
        Ok(())
    }

    /// Handles the completions of all hosts.
    pub(super) fn progress(&mut self, world: &mut World) -> Result<(), PostError> {
        for host in 0..world.hosts.len() {
            while let Some(received) = self.flows.complete_next(world, host)? {
                if let Some(received) = received {
                    self.receive(world, host, received)?;
                }
            }
        }
        let now = world.now();
        for (flow, changes) in self.flows.all().iter().zip(&mut self.rate_changes) {
            let limit = world.hosts[flow.ends[0].host].rate_limit(flow.ends[0].qpn);
            let before = changes.last().and_then(|(_, limit)| *limit);
            if limit != before && flow.finished.is_none() {
                changes.push((now, limit));
            }
        }
        Ok(())
    }

    /// Handles a grant at a sender, or the end of a message at a receiver.
    fn receive(
        &mut self,
        world: &mut World,
        host: usize,
        (place, side): Received,
    ) -> Result<(), PostError> {
        let Some(grants) = &mut self.grants else { return Ok(()) };
        if side == 1 {
            grants.hosts[host].0 -= 1;
            return self.grant(world, host);
        }
        let granted = &mut self.flows.all_mut()[place].granted;
        *granted = granted.map(|messages| messages + 1);
        self.flows.post(world, place)
    }

    /// Lets the next senders of a receiver write.
    fn grant(&mut self, world: &mut World, host: usize) -> Result<(), PostError> {
        let Self { flows, grants: Some(grants), .. } = self else { return Ok(()) };
        let count = flows.all().len();
        for _ in 0..count {
            if grants.hosts[host].0 >= grants.at_once {
                return Ok(());
            }
            let place = grants.hosts[host].1 % count;
            grants.hosts[host].1 = place + 1;
            let flow = &flows.all()[place];
            if flow.ends[1].host == host && flow.is_started && grants.left[place] > 0 {
                grants.hosts[host].0 += 1;
                grants.left[place] -= 1;
                let operation = SendOperation::Send { immediate: None, invalidate: None };
                let work = SendWr::new(0, operation, SgList::default());
                world.post_send(flow.ends[1], work)?;
            }
        }
        Ok(())
    }

    /// Returns true if no flow will send any more.
    pub(super) fn are_finished(&self) -> bool {
        self.flows.are_done()
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.names.clone()
    }

    pub(super) fn rate_changes(self) -> Vec<Vec<(Instant, Option<u64>)>> {
        self.rate_changes
    }

    /// Returns the rates that congestion control allows.
    pub(super) fn rates(&self, world: &World) -> Vec<f64> {
        self.flows.rates(world, self.names.len())
    }

    /// Returns the bytes of payload that arrived.
    pub(super) fn arrived(&self, world: &World) -> Vec<u64> {
        let arrived = |flow: &flows::Flow| {
            let End { host, qpn } = flow.ends[1];
            world.hosts[host].arrived_bytes(qpn)
        };
        self.flows.all().iter().map(arrived).collect()
    }

    /// Adds the figures of each flow and of all.
    pub(super) fn figures(&self, figures: &mut BTreeMap<String, Figure>) {
        let mut add = |name: String, value: f64, unit| {
            figures.insert(name, Figure::new(value, unit));
        };
        let (mut last, mut goodputs) = (0.0_f64, Vec::new());
        let flows = self.flows.all();
        for ((flow, name), rate_changes) in flows.iter().zip(&self.names).zip(&self.rate_changes) {
            let took = flow
                .finished
                .map_or(f64::INFINITY, |at| at.saturating_since(flow.plan.start).as_nanos() as f64);
            let bits = flow.plan.bytes as f64 * 8.0;
            let goodput = bits * 1e9 / took;
            add(format!("{name}.time"), took, Unit::Nanos);
            add(format!("{name}.rate"), goodput, Unit::BitsPerSec);
            for (place, (at, rate)) in rate_changes.iter().enumerate().take(MAX_STEPS) {
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
        let unfinished = flows.iter().filter(|flow| flow.finished.is_none()).count();
        add("time".to_owned(), last, Unit::Nanos);
        let failed = flows.iter().filter(|flow| flow.has_failed).count();
        add("failed".to_owned(), failed as f64, Unit::Count);
        add("unfinished".to_owned(), unfinished as f64, Unit::Count);
        add("fairness".to_owned(), sum * sum / (goodputs.len() as f64 * squares), Unit::Number);
    }
}

/// Most changes of a limit that are figures.
const MAX_STEPS: usize = 50;
