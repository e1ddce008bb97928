//! Flows over a fabric: hosts that pace, acknowledge, notify and send again.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use roce_transport::Instant;

use super::control::{CongestionModel, RateControl};
use super::flow::{CnpTiming, Flow, FlowSpec, Received, Recovery};
use super::packet::{CONTROL_BYTES, DATA_CLASS, Kind, Packet};
use super::round_trip::Timeouts;
use super::trace::Trace;
use super::{FlowResult, Results};
use roce_fabric::Time;
use roce_fabric::{Fabric, FabricConfig, FabricEvent, Topology};

/// Parameters of a [`Simulation`].
#[derive(Clone, Debug)]
pub struct SimulationConfig {
    /// Switches, routes and losses.
    pub fabric: FabricConfig,
    /// Congestion control.
    pub congestion: CongestionModel,
    /// Payload of a packet in bytes, at least 1.
    pub payload: u32,
    /// Header bytes of a packet that links and buffers count.
    pub headers: u32,
    /// Smallest time between two CNPs of a flow.
    pub cnp_interval: Duration,
    /// What the interval does to marks.
    pub cnp_timing: CnpTiming,
    /// Reaction to lost packets.
    pub recovery: Recovery,
    /// Packets in a row of which one asks for an ACK, at least 1; every second one of a window, if
    /// that is less. The end of a window and of a flow, and what is sent again, ask too. Gaps and
    /// repeated packets are answered at once.
    pub ack_every: u64,
    /// Largest number of unacknowledged bytes of a flow, `u64::MAX` for none.
    pub window: u64,
    /// Least time without progress after which a flow sends again. It is longer where the measured
    /// RTT and four times its deviation are.
    pub retry_timeout: Duration,
    /// That time until an RTT is measured, at least `retry_timeout`.
    pub first_timeout: Duration,
    /// Bytes of a message: what go-back-0 sends again.
    pub message: u64,
    /// Number of packets by which a packet may be late before it counts as missing, for
    /// [`Recovery::Keep`].
    pub reordering: u64,
    /// RTT of an idle network; what an ACK took longer is queueing delay.
    pub base_rtt: Duration,
    /// Time between two samples of the trace, at least 1 ns.
    pub sample: Duration,
    /// Samples before this time are not part of means and percentiles.
    pub warm_up: Duration,
}

impl Default for SimulationConfig {
    /// Line rate, 1000 bytes of payload, 58 of headers, 50 µs between CNPs, which marks cause at once, go-back-N, an ACK for 4
    /// packets, no window, retries after 1 ms, messages of 4 MB, no reordering, samples of 10 µs.
    fn default() -> Self {
        Self {
            fabric: FabricConfig::default(),
            congestion: CongestionModel::None,
            payload: 1000,
            headers: 58,
            cnp_interval: Duration::from_micros(50),
            cnp_timing: CnpTiming::AtOnce,
            recovery: Recovery::GoBackN,
            ack_every: 4,
            window: u64::MAX,
            retry_timeout: Duration::from_millis(1),
            first_timeout: Duration::from_millis(1),
            message: 4_000_000,
            reordering: 0,
            base_rtt: Duration::ZERO,
            sample: Duration::from_micros(10),
            warm_up: Duration::ZERO,
        }
    }
}

impl SimulationConfig {
    const fn timeouts(&self) -> Timeouts {
        Timeouts { first: self.first_timeout, least: self.retry_timeout }
    }
}

/// Flows over a fabric in virtual time.
///
/// # Example
/// Two flows into one host share its link.
/// ```
/// use roce_fabric::Topology;
/// use roce_simnet::traffic::{Simulation, SimulationConfig, incast};
/// use std::time::Duration;
///
/// let topology = Topology::star(3, 10_000_000_000, Duration::from_micros(1));
/// let mut simulation =
///     Simulation::new(topology, SimulationConfig::default(), incast(2, 1_000_000));
/// let results = simulation.run(Duration::from_millis(10));
/// assert!(results.flows.iter().all(|flow| flow.finished.is_some()));
/// ```
#[derive(Debug)]
pub struct Simulation {
    fabric: Fabric<Packet>,
    config: SimulationConfig,
    flows: Vec<Flow>,
    /// Flows that forward what this one receives.
    forwarded_by: Vec<Vec<usize>>,
    hosts: Vec<Host>,
    timers: BinaryHeap<Reverse<(Time, u64, Timer)>>,
    causes: u64,
    trace: Trace,
    finished: usize,
}

#[derive(Debug, Default)]
struct Host {
    /// Flows that are not finished.
    flows: Vec<usize>,
    turn: usize,
    wake_at: Option<Time>,
    line_rate: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Start(usize),
    Pace(usize),
    Retry(usize),
    /// A packet was marked since the flow's last CNP.
    Notify(usize),
    Sample,
}

impl Simulation {
    /// Creates a simulation at [`Time::START`].
    ///
    /// # Panics
    /// If a flow names a host that does not exist.
    pub fn new(topology: Topology, config: SimulationConfig, flows: Vec<FlowSpec>) -> Self {
        let mut hosts: Vec<Host> = topology.hosts().iter().map(|_| Host::default()).collect();
        for (host, node) in hosts.iter_mut().zip(topology.hosts()) {
            let link = topology.links().iter().find(|link| link.ends.contains(node));
            host.line_rate = link.map_or(1, |link| link.bits_per_sec);
        }
        let payload = u64::from(config.payload.max(1));
        let in_packets = |bytes: u64| bytes.div_ceil(payload).max(1);
        let mut forwarded_by = vec![Vec::new(); flows.len()];
        for (index, flow) in flows.iter().enumerate() {
            assert!(flow.from.max(flow.to) < hosts.len(), "flow {index} needs existing hosts");
            if let Some((other, _)) = flow.forwards {
                forwarded_by[other].push(index);
            }
        }
        let flows = flows
            .into_iter()
            .map(|spec| {
                let packets = in_packets(spec.bytes);
                let available =
                    spec.forwards.map_or(packets, |(_, ahead)| in_packets(ahead).min(packets));
                let line_rate = hosts[spec.from].line_rate;
                let first_rate = spec.first_rate.unwrap_or(1.0);
                let control = RateControl::new(&config.congestion, line_rate, first_rate);
                Flow::new(spec, packets, available, control)
            })
            .collect();
        let mut simulation = Self {
            fabric: Fabric::new(topology, config.fabric.clone()),
            trace: Trace::default(),
            config,
            flows,
            forwarded_by,
            hosts,
            timers: BinaryHeap::new(),
            causes: 0,
            finished: 0,
        };
        for flow in 0..simulation.flows.len() {
            simulation.schedule(simulation.flows[flow].spec.start, Timer::Start(flow));
        }
        simulation.schedule(Time::START, Timer::Sample);
        simulation
    }

    /// Takes a link down or up; see [`Fabric::set_link`].
    pub fn set_link(&mut self, link: usize, up: bool) {
        self.fabric.set_link(link, up);
    }

    /// Runs until all flows are finished, at most until this time since [`Time::START`]. Returns
    /// the results so far.
    pub fn run(&mut self, limit: Duration) -> Results {
        let limit = Time::START + limit;
        while self.finished < self.flows.len() {
            let timer = self.timers.peek().map_or(limit, |Reverse((at, ..))| *at);
            let until = timer.min(limit);
            while let Some(event) = self.fabric.step(until) {
                self.handle(event);
                if self.timers.peek().is_some_and(|Reverse((at, ..))| *at < until) {
                    break;
                }
            }
            let now = self.fabric.now();
            let due = |timers: &BinaryHeap<Reverse<(Time, u64, Timer)>>| {
                timers.peek().is_some_and(|Reverse((at, ..))| *at <= now)
            };
            while due(&self.timers) {
                let Some(Reverse((_, _, timer))) = self.timers.pop() else { break };
                self.expire(timer);
            }
            if now >= limit {
                break;
            }
        }
        self.results()
    }

    /// Returns the samples so far.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    fn handle(&mut self, event: FabricEvent<Packet>) {
        match event {
            FabricEvent::Ready { host } => self.transmit(host),
            FabricEvent::Arrived { frame, .. } => match frame.kind {
                Kind::Data => self.receive_data(frame),
                _ => self.receive_control(frame),
            },
            // The fabric stops the host's output.
            FabricEvent::Paused { .. } => {}
        }
    }

    fn expire(&mut self, timer: Timer) {
        let now = self.fabric.now();
        match timer {
            Timer::Start(flow) => {
                let host = self.flows[flow].spec.from;
                self.flows[flow].started = true;
                self.hosts[host].flows.push(flow);
                self.transmit(host);
            }
            Timer::Pace(host) => {
                if self.hosts[host].wake_at.is_some_and(|at| at <= now) {
                    self.hosts[host].wake_at = None;
                    self.transmit(host);
                }
            }
            Timer::Retry(flow) => self.retry(flow),
            Timer::Notify(flow) => self.notify(flow),
            Timer::Sample => {
                let packet = self.config.payload + self.config.headers;
                self.trace.sample(&self.fabric, &self.flows, packet);
                self.schedule(now + self.config.sample.max(Duration::from_nanos(1)), Timer::Sample);
            }
        }
    }

    /// Sends the host's next packet if its link is free.
    fn transmit(&mut self, host: usize) {
        if !self.fabric.can_send(host, DATA_CLASS) {
            return;
        }
        let now = self.fabric.now();
        let nanos = now.as_nanos() as f64;
        let payload = u64::from(self.config.payload.max(1));
        let bytes = self.config.payload + self.config.headers;
        let count = self.hosts[host].flows.len();
        let mut wake = f64::MAX;
        for step in 0..count {
            let place = (self.hosts[host].turn + step) % count;
            let index = self.hosts[host].flows[place];
            let flow = &mut self.flows[index];
            flow.control.advance(now);
            let window = flow.control.window().unwrap_or(u64::MAX).min(self.config.window);
            let window = (window / payload).max(1);
            if !flow.has_packet(window) {
                continue;
            }
            let interval = f64::from(bytes) * 8e9 / flow.control.rate(bytes);
            let due = flow.last_send.map_or(nanos, |last| last + interval);
            if due > nanos {
                let change = flow.control.next_change();
                wake = wake.min(change.map_or(due, |at| due.min(at.as_nanos() as f64)));
                continue;
            }
            let (seq, asks_ack) = flow.take(window, self.config.ack_every);
            // A flow that could not send catches up one packet at most.
            flow.last_send = Some(due.max(nanos - interval));
            flow.control.on_sent(now, bytes);
            if flow.retry_at.is_none() {
                flow.arm_retry(now, self.config.timeouts());
            }
            let arm = flow.retry_at.filter(|_| !flow.retry_armed);
            flow.retry_armed |= arm.is_some();
            let packet = Packet {
                flow: index as u32,
                to: flow.spec.to as u32,
                kind: Kind::Data,
                seq,
                bytes,
                sent: now,
                ecn_capable: true,
                ce: false,
                asks_ack,
            };
            self.hosts[host].turn = place + 1;
            if let Some(at) = arm {
                self.schedule(at, Timer::Retry(index));
            }
            self.fabric.send(host, packet);
            return;
        }
        if wake < f64::MAX {
            let at = Time::from_nanos(wake.ceil() as u64);
            if self.hosts[host].wake_at.is_none_or(|before| before > at) {
                self.hosts[host].wake_at = Some(at);
                self.schedule(at, Timer::Pace(host));
            }
        }
    }

    fn receive_data(&mut self, packet: Packet) {
        let now = self.fabric.now();
        let index = packet.flow as usize;
        let message = (self.config.message / u64::from(self.config.payload.max(1))).max(1);
        let flow = &mut self.flows[index];
        let before = flow.expected;
        let received = flow.receive(packet.seq, self.config.recovery, message);
        let mut answers: [Option<Kind>; 2] = [None, None];
        let mut notify_at = None;
        if packet.ce {
            flow.ce_seen = true;
            let instant = Instant::from_nanos(now.as_nanos());
            let is_due = match self.config.cnp_timing {
                CnpTiming::Slots => flow.enters_slot(now, index, self.config.cnp_interval),
                _ => !flow.marked && flow.notification.on_marked(instant, self.config.cnp_interval),
            };
            if is_due {
                flow.cnps += 1;
                flow.last_cnp = now;
                answers[0] = Some(Kind::Cnp);
            } else if self.config.cnp_timing == CnpTiming::Remembered && !flow.marked {
                flow.marked = true;
                notify_at = Some(flow.last_cnp + self.config.cnp_interval);
            }
        }
        let done = flow.expected >= flow.packets;
        match received {
            Received::InOrder => {
                if packet.asks_ack || done {
                    answers[1] = Some(Kind::Ack);
                }
                if done && flow.finished.is_none() {
                    flow.finished = Some(now);
                    self.finished += 1;
                }
            }
            Received::Duplicate => answers[1] = Some(Kind::Ack),
            Received::Gap => {
                // Without kept packets one NAK says it all until the gap closes.
                if self.config.recovery == Recovery::Keep || !flow.nak_sent {
                    flow.nak_sent = true;
                    answers[1] = Some(Kind::Nak { seen: packet.seq });
                }
            }
        }
        if let Some(at) = notify_at {
            self.schedule(at, Timer::Notify(index));
        }
        let flow = &mut self.flows[index];
        let (host, to, seq) = (flow.spec.to, flow.spec.from as u32, flow.expected);
        let progress = flow.expected > before;
        let mut ce = packet.ce;
        if answers[1].is_some() {
            ce = std::mem::take(&mut flow.ce_seen);
        }
        for kind in answers.into_iter().flatten() {
            let answer = Packet {
                to,
                kind,
                seq,
                bytes: CONTROL_BYTES,
                ecn_capable: false,
                ce: ce && kind != Kind::Cnp,
                asks_ack: false,
                ..packet
            };
            self.fabric.send(host, answer);
        }
        if progress {
            self.forward(index);
        }
    }

    /// Makes what a flow has received available to the flows that forward it.
    fn forward(&mut self, from: usize) {
        let arrived = self.flows[from].expected;
        for place in 0..self.forwarded_by[from].len() {
            let index = self.forwarded_by[from][place];
            let flow = &mut self.flows[index];
            let ahead = flow.spec.forwards.map_or(0, |(_, bytes)| bytes);
            let ahead = ahead.div_ceil(u64::from(self.config.payload.max(1)));
            let available = (arrived + ahead).min(flow.packets);
            if available > flow.available {
                flow.available = available;
                let host = flow.spec.from;
                self.transmit(host);
            }
        }
    }

    fn receive_control(&mut self, packet: Packet) {
        let now = self.fabric.now();
        let index = packet.flow as usize;
        let flow = &mut self.flows[index];
        let host = flow.spec.from;
        if packet.kind == Kind::Cnp {
            flow.control.on_cnp(now);
        } else {
            let newly = flow.acknowledge(packet.seq);
            if newly > 0 {
                let rtt = now - packet.sent;
                let bytes = newly * u64::from(self.config.payload);
                flow.round_trip.sample(rtt);
                flow.control.on_ack(now, bytes, rtt, self.config.base_rtt, packet.ce);
                flow.arm_retry(now, self.config.timeouts());
            }
            if let Kind::Nak { seen } = packet.kind {
                let tolerance = self.config.reordering;
                if self.config.recovery != Recovery::Keep || seen >= packet.seq + tolerance {
                    flow.control.on_loss(now);
                }
                flow.reject(packet.seq, seen, self.config.recovery, tolerance);
            }
            if flow.acked >= flow.packets {
                flow.retry_at = None;
                self.hosts[host].flows.retain(|it| *it != index);
            }
        }
        self.transmit(host);
    }

    /// Sends the CNP for packets that were marked within the interval after the last one.
    fn notify(&mut self, index: usize) {
        let now = self.fabric.now();
        let flow = &mut self.flows[index];
        let instant = Instant::from_nanos(now.as_nanos());
        flow.marked = false;
        flow.last_cnp = now;
        if flow.notification.on_marked(instant, self.config.cnp_interval) {
            flow.cnps += 1;
            let packet = Packet {
                flow: index as u32,
                to: flow.spec.from as u32,
                kind: Kind::Cnp,
                seq: flow.expected,
                bytes: CONTROL_BYTES,
                sent: now,
                ecn_capable: false,
                ce: false,
                asks_ack: false,
            };
            let host = flow.spec.to;
            self.fabric.send(host, packet);
        }
    }

    fn retry(&mut self, index: usize) {
        let now = self.fabric.now();
        let message = (self.config.message / u64::from(self.config.payload.max(1))).max(1);
        let flow = &mut self.flows[index];
        flow.retry_armed = false;
        match flow.retry_at {
            None => {}
            Some(at) if at > now => {
                flow.retry_armed = true;
                self.schedule(at, Timer::Retry(index));
            }
            Some(_) if flow.in_flight() => {
                let host = flow.spec.from;
                flow.control.on_loss(now);
                flow.expire(self.config.recovery, message);
                let at = now + flow.timeout(self.config.timeouts());
                flow.retry_at = Some(at);
                flow.retry_armed = true;
                self.schedule(at, Timer::Retry(index));
                self.transmit(host);
            }
            Some(_) => flow.retry_at = None,
        }
    }

    fn schedule(&mut self, at: Time, timer: Timer) {
        self.causes += 1;
        self.timers.push(Reverse((at, self.causes, timer)));
    }

    fn results(&self) -> Results {
        let now = self.fabric.now();
        let flow = |flow: &Flow| FlowResult {
            spec: flow.spec.clone(),
            delivered: (flow.expected * u64::from(self.config.payload)).min(flow.spec.bytes),
            finished: flow.finished,
            sent: flow.sent,
            resent: flow.resent,
            cnps: flow.cnps,
            timeouts: flow.timeouts,
        };
        Results {
            time: now,
            flows: self.flows.iter().map(flow).collect(),
            fabric: self.fabric.counters(),
            switches: self.fabric.switch_counters(),
            queue: self.trace.queue_stats(self.config.warm_up),
        }
    }
}
