//! The event-driven fabric: hosts and switches, and frames on the links between them.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use roce_wire::{PFC_FRAME_LEN, PfcFrame};

use crate::output_port::OutputPort;
use crate::{
    CLASSES, ClassScheduling, FabricFrame, Output, PortCounters, Switch, SwitchConfig, Topology,
};
use crate::{Instant, SplitMix64};

/// Parameters of a [`Fabric`].
#[derive(Clone, Debug, PartialEq)]
pub struct FabricConfig {
    /// All switches.
    pub switch: SwitchConfig,
    /// Choice among shortest paths.
    pub routing: Routing,
    /// Bytes on each link beside those that a frame counts: preamble, FCS, gap.
    pub wire_overhead: u64,
    /// Probability that a link loses a frame, 0 to 1.
    pub loss: f64,
    /// Seed of marks, losses and path choices.
    pub seed: u64,
}

impl Default for FabricConfig {
    /// Default switches, ECMP, 24 bytes of overhead, no loss, seed 1.
    fn default() -> Self {
        Self {
            switch: SwitchConfig::default(),
            routing: Routing::Ecmp,
            wire_overhead: 24,
            loss: 0.0,
            seed: 1,
        }
    }
}

/// Choice among the shortest paths to a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routing {
    /// By the flow's hash: all frames of a flow take one path.
    Ecmp,
    /// At random for each frame.
    Spray,
}

/// What happened at a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FabricEvent<F> {
    /// A frame came in.
    Arrived {
        /// Index of the host.
        host: usize,
        /// The frame.
        frame: F,
    },
    /// The host's link became free, or a pause of it ended.
    Ready {
        /// Index of the host.
        host: usize,
    },
    /// A pause frame came in, which the host's output queues honour.
    Paused {
        /// Index of the host.
        host: usize,
        /// The pause frame.
        pause: PfcFrame,
    },
}

/// Counters of a fabric.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FabricCounters {
    /// Frames that hosts sent.
    pub sent_frames: u64,
    /// Bytes of those.
    pub sent_bytes: u64,
    /// Frames that hosts received.
    pub delivered_frames: u64,
    /// Bytes of those.
    pub delivered_bytes: u64,
    /// Frames that links lost, at random or because they failed.
    pub lost_frames: u64,
    /// Bytes of those.
    pub lost_bytes: u64,
    /// Frames without a path.
    pub unroutable_frames: u64,
    /// Bytes of those.
    pub unroutable_bytes: u64,
    /// Pause frames that switches and hosts sent.
    pub pause_frames: u64,
}

/// A fabric in virtual time: event-driven, seeded, and the same for the same calls.
///
/// Switches store and forward. A host sends by its first link, honours pauses, and has an output
/// queue per class.
///
/// # Example
/// ```
/// use roce_fabric::Instant;
/// use roce_fabric::*;
/// use std::time::Duration;
///
/// #[derive(Debug, PartialEq)]
/// struct Frame(usize);
/// impl SwitchFrame for Frame {
///     fn len(&self) -> u64 { 1226 }
///     fn class(&self) -> usize { 3 }
///     fn is_ecn_capable(&self) -> bool { false }
///     fn mark_ce(&mut self) {}
/// }
/// impl FabricFrame for Frame {
///     fn destination(&self) -> usize { self.0 }
/// }
///
/// let topology = Topology::star(2, 10_000_000_000, Duration::from_micros(1));
/// let mut fabric = Fabric::new(topology, FabricConfig::default());
/// fabric.send(0, Frame(1));
/// let end = Instant::from_nanos(10_000);
/// assert_eq!(fabric.step(end), Some(FabricEvent::Ready { host: 0 }));
/// assert_eq!(fabric.step(end), Some(FabricEvent::Arrived { host: 1, frame: Frame(1) }));
/// assert_eq!(fabric.now(), Instant::from_nanos(2 * 1000 + 2 * 1000)); // two links
/// ```
#[derive(Debug)]
pub struct Fabric<F> {
    now: u64,
    topology: Topology,
    nodes: Vec<Node<F>>,
    lines: Vec<Line<F>>,
    up: Vec<bool>,
    /// Ports of the shortest paths, for each node and host.
    routes: Vec<Vec<Vec<usize>>>,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    causes: u64,
    happened: VecDeque<FabricEvent<F>>,
    random: SplitMix64,
    config: FabricConfig,
    counters: FabricCounters,
}

#[derive(Debug)]
struct Node<F> {
    role: Role<F>,
    /// Outgoing line of each port.
    lines: Vec<usize>,
    timer: Option<u64>,
}

#[derive(Debug)]
enum Role<F> {
    Host { index: usize, output: Box<OutputPort<F>>, pause: Option<PfcFrame> },
    Switch(Box<Switch<F>>),
}

/// One direction of a link.
#[derive(Debug)]
struct Line<F> {
    link: usize,
    from: usize,
    to: usize,
    /// Port of `to` that it ends at.
    to_port: usize,
    bits_per_sec: u64,
    delay: u64,
    busy: bool,
    /// Frames on their way, in order of arrival.
    flying: VecDeque<Item<F>>,
}

#[derive(Debug)]
enum Item<F> {
    Frame(F),
    Pause(Box<[u8; PFC_FRAME_LEN]>),
    Lost,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The line's transmitter is free.
    Sent(u32),
    /// The oldest frame of the line arrives.
    Arrived(u32),
    Timer(u32),
}

impl<F: FabricFrame> Fabric<F> {
    /// Creates a fabric at [`Instant::START`].
    pub fn new(topology: Topology, config: FabricConfig) -> Self {
        let mut lines = Vec::new();
        let mut ports = vec![Vec::new(); topology.nodes()];
        for (link, it) in topology.links().iter().enumerate() {
            for (from, to) in [(it.ends[0], it.ends[1]), (it.ends[1], it.ends[0])] {
                ports[from].push(lines.len());
                lines.push(Line {
                    link,
                    from,
                    to,
                    to_port: 0,
                    bits_per_sec: it.bits_per_sec,
                    delay: u64::try_from(it.delay.as_nanos() * PICOS).unwrap_or(u64::MAX / 4),
                    busy: false,
                    flying: VecDeque::new(),
                });
            }
        }
        for (line, it) in lines.iter_mut().enumerate() {
            // The two lines of a link follow each other.
            it.to_port = ports[it.to].iter().position(|out| *out == line ^ 1).unwrap_or_default();
        }
        let mut hosts = 0;
        let nodes = ports
            .into_iter()
            .enumerate()
            .map(|(node, out)| {
                let rates: Vec<_> = out.iter().map(|line| lines[*line].bits_per_sec).collect();
                let role = if topology.is_switch(node) {
                    let seed = config.seed.wrapping_mul(SEED_STEP).wrapping_add(node as u64);
                    Role::Switch(Box::new(Switch::new(config.switch.clone(), &rates, seed)))
                } else {
                    let rate = rates.first().copied().unwrap_or(1);
                    hosts += 1;
                    let output = Box::new(OutputPort::new(rate, ClassScheduling::DEFAULT));
                    Role::Host { index: hosts - 1, output, pause: None }
                };
                Node { role, lines: out, timer: None }
            })
            .collect();
        let up = vec![true; topology.links().len()];
        let mut fabric = Self {
            now: 0,
            routes: Vec::new(),
            topology,
            nodes,
            lines,
            up,
            events: BinaryHeap::new(),
            causes: 0,
            happened: VecDeque::new(),
            random: SplitMix64::new(config.seed),
            config,
            counters: FabricCounters::default(),
        };
        fabric.set_routes();
        fabric
    }

    /// Returns the virtual time, rounded down to nanoseconds.
    pub fn now(&self) -> Instant {
        Instant::from_nanos(self.now / PICOS as u64)
    }

    /// Returns the topology.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Returns the counters.
    pub fn counters(&self) -> FabricCounters {
        self.counters
    }

    /// Returns a switch.
    ///
    /// # Panics
    /// If `node` is no switch.
    pub fn switch(&self, node: usize) -> &Switch<F> {
        match &self.nodes[node].role {
            Role::Switch(switch) => switch,
            Role::Host { .. } => panic!("node {node} is a host"),
        }
    }

    /// Returns the port by which `node` sends on `link`.
    ///
    /// # Panics
    /// If the link does not end at the node.
    pub fn port(&self, node: usize, link: usize) -> usize {
        let lines = &self.nodes[node].lines;
        let port = lines.iter().position(|line| self.lines[*line].link == link);
        port.expect("the link ends at the node")
    }

    /// Returns the sum of the counters of all ports of all switches.
    pub fn switch_counters(&self) -> PortCounters {
        let mut sum = PortCounters::default();
        for node in &self.nodes {
            let Role::Switch(switch) = &node.role else { continue };
            for port in 0..switch.ports() {
                sum += switch.counters(port);
            }
        }
        sum
    }

    /// Returns true if the host's link is free and its class neither paused nor queued.
    ///
    /// # Panics
    /// If there is no such host.
    pub fn can_send(&self, host: usize, class: usize) -> bool {
        let node = &self.nodes[self.topology.hosts()[host]];
        let Role::Host { output, .. } = &node.role else { return false };
        let free = node.lines.first().is_some_and(|line| !self.lines[*line].busy);
        free && output.bytes(class % CLASSES) == 0 && !output.is_paused(self.now(), class % CLASSES)
    }

    /// Returns the bytes of a class that wait for the host's link.
    ///
    /// # Panics
    /// If there is no such host.
    pub fn host_queue_bytes(&self, host: usize, class: usize) -> u64 {
        match &self.nodes[self.topology.hosts()[host]].role {
            Role::Host { output, .. } => output.bytes(class % CLASSES),
            Role::Switch(_) => 0,
        }
    }

    /// Returns the bytes that wait at the host; `None` while its link sends a frame.
    ///
    /// # Panics
    /// If there is no such host.
    pub fn waiting_bytes(&self, host: usize) -> Option<u64> {
        let node = &self.nodes[self.topology.hosts()[host]];
        let Role::Host { output, .. } = &node.role else { return None };
        let is_free = node.lines.first().is_some_and(|line| !self.lines[*line].busy);
        is_free.then(|| (0..CLASSES).map(|class| output.bytes(class)).sum())
    }

    /// Queues a frame at a host.
    ///
    /// # Panics
    /// If there is no such host.
    pub fn send(&mut self, host: usize, frame: F) {
        let now = self.now();
        let node = self.topology.hosts()[host];
        self.counters.sent_frames += 1;
        self.counters.sent_bytes += frame.len();
        if let Role::Host { output, .. } = &mut self.nodes[node].role {
            output.push(now, frame.class() % CLASSES, frame, 0);
        }
        self.kick(node, 0);
    }

    /// Sends a pause frame from a host, before all its frames.
    ///
    /// # Panics
    /// If there is no such host.
    pub fn send_pause(&mut self, host: usize, frame: PfcFrame) {
        let node = self.topology.hosts()[host];
        if let Role::Host { pause, .. } = &mut self.nodes[node].role {
            *pause = Some(frame);
        }
        self.kick(node, 0);
    }

    /// Takes a link down or up, and computes the routes again. Frames on a link that fails, and
    /// frames that wait for it at its switches, are lost.
    ///
    /// # Panics
    /// If there is no such link.
    pub fn set_link(&mut self, link: usize, up: bool) {
        self.up[link] = up;
        self.set_routes();
        for line in [2 * link, 2 * link + 1] {
            let (node, port) = (self.lines[line].from, self.port(self.lines[line].from, link));
            if !up {
                let mut lost = (0, 0);
                for item in &mut self.lines[line].flying {
                    if let Item::Frame(frame) = std::mem::replace(item, Item::Lost) {
                        lost.0 += 1;
                        lost.1 += frame.len();
                    }
                }
                self.counters.lost_frames += lost.0;
                self.counters.lost_bytes += lost.1;
                if let Role::Switch(switch) = &mut self.nodes[node].role {
                    switch.discard(port);
                }
                self.after_switch(node);
            }
            self.kick(node, port);
        }
    }

    /// Returns when something happens next, rounded down to nanoseconds.
    pub fn next_event(&self) -> Option<Instant> {
        let first = self.events.peek();
        first.map(|Reverse((at, ..))| Instant::from_nanos(at / PICOS as u64))
    }

    /// Moves the clock until something happens at a host, but not beyond `until`. Returns `None`
    /// if nothing does by then; the clock then is at `until`.
    pub fn step(&mut self, until: Instant) -> Option<FabricEvent<F>> {
        let until = until.as_nanos().saturating_mul(PICOS as u64);
        loop {
            if let Some(event) = self.happened.pop_front() {
                return Some(event);
            }
            match self.events.peek() {
                Some(Reverse((at, ..))) if *at <= until => {}
                _ => {
                    self.now = self.now.max(until);
                    return None;
                }
            }
            let Some(Reverse((at, _, event))) = self.events.pop() else { continue };
            self.now = at;
            match event {
                Event::Sent(line) => {
                    let line = line as usize;
                    self.lines[line].busy = false;
                    self.kick_line(line);
                }
                Event::Arrived(line) => self.arrive(line as usize),
                Event::Timer(node) => self.timeout(node as usize),
            }
        }
    }

    fn set_routes(&mut self) {
        let mut routes = self.topology.routes(&self.up);
        for (node, of_node) in routes.iter_mut().enumerate() {
            for link in of_node.iter_mut().flatten() {
                *link = self.port(node, *link);
            }
        }
        self.routes = routes;
    }

    fn schedule(&mut self, at: u64, event: Event) {
        self.causes += 1;
        self.events.push(Reverse((at, self.causes, event)));
    }

    fn kick(&mut self, node: usize, port: usize) {
        if let Some(line) = self.nodes[node].lines.get(port) {
            self.kick_line(*line);
        }
    }

    /// Sends what the line's node has for it, if the line is free.
    fn kick_line(&mut self, line: usize) {
        let now = self.now();
        let Line { link, from, busy, bits_per_sec, delay, .. } = self.lines[line];
        if busy || !self.up[link] {
            return;
        }
        let port = self.lines[line ^ 1].to_port;
        let output = match &mut self.nodes[from].role {
            Role::Switch(switch) => switch.transmit(now, port),
            Role::Host { index, output, pause } => {
                let next = match pause.take() {
                    Some(pause) => Some(Output::Pause(pause)),
                    None => output.pop(now).map(|(frame, ..)| Output::Frame(frame)),
                };
                if next.is_none() && output.is_empty() {
                    self.happened.push_back(FabricEvent::Ready { host: *index });
                }
                next
            }
        };
        let Some(output) = output else { return };
        let (len, item) = match output {
            Output::Frame(frame) => {
                let len = frame.len();
                if self.config.loss > 0.0 && self.random.random_bool(self.config.loss) {
                    self.counters.lost_frames += 1;
                    self.counters.lost_bytes += len;
                    (len, Item::Lost)
                } else {
                    (len, Item::Frame(frame))
                }
            }
            Output::Pause(pause) => {
                self.counters.pause_frames += 1;
                (PFC_FRAME_LEN as u64, Item::Pause(Box::new(pause.to_bytes())))
            }
        };
        let bits = u128::from((len + self.config.wire_overhead) * 8);
        let span = bits * PICOS_PER_SEC / u128::from(bits_per_sec);
        let left = self.now + u64::try_from(span).unwrap_or(u64::MAX / 4);
        let this = &mut self.lines[line];
        this.busy = true;
        this.flying.push_back(item);
        self.schedule(left, Event::Sent(line as u32));
        self.schedule(left + delay, Event::Arrived(line as u32));
        if matches!(self.nodes[from].role, Role::Switch(_)) {
            self.after_switch(from);
        }
    }

    fn arrive(&mut self, line: usize) {
        let now = self.now();
        let Some(item) = self.lines[line].flying.pop_front() else { return };
        let (node, port) = (self.lines[line].to, self.lines[line].to_port);
        match (item, &mut self.nodes[node].role) {
            (Item::Lost, _) => {}
            (Item::Frame(frame), Role::Host { index, .. }) => {
                self.counters.delivered_frames += 1;
                self.counters.delivered_bytes += frame.len();
                self.happened.push_back(FabricEvent::Arrived { host: *index, frame });
            }
            (Item::Frame(frame), Role::Switch(switch)) => {
                let paths = &self.routes[node][frame.destination()];
                let choice = match self.config.routing {
                    _ if paths.len() < 2 => 0,
                    Routing::Ecmp => {
                        let mixed = SplitMix64::new(frame.flow_hash() ^ (node as u64) << 48)
                            .below(paths.len() as u64);
                        mixed as usize
                    }
                    Routing::Spray => self.random.below(paths.len() as u64) as usize,
                };
                let Some(&to) = paths.get(choice) else {
                    self.counters.unroutable_frames += 1;
                    self.counters.unroutable_bytes += frame.len();
                    return;
                };
                let accepted = switch.receive(now, port, to, frame);
                self.after_switch(node);
                if accepted {
                    self.kick(node, to);
                }
            }
            (Item::Pause(bytes), role) => {
                let Ok(pause) = PfcFrame::parse(&bytes[..]) else { return };
                match role {
                    Role::Host { index, output, .. } => {
                        output.pause(now, &pause);
                        self.happened.push_back(FabricEvent::Paused { host: *index, pause });
                    }
                    Role::Switch(switch) => switch.handle_pause(now, port, &pause),
                }
                self.set_timer(node);
                self.kick(node, port);
            }
        }
    }

    fn timeout(&mut self, node: usize) {
        if self.nodes[node].timer != Some(self.now) {
            return; // another one replaced it
        }
        self.nodes[node].timer = None;
        // The switch counts nanoseconds; those that have begun are over.
        let now = Instant::from_nanos(self.now.div_ceil(PICOS as u64));
        match &mut self.nodes[node].role {
            Role::Host { output, .. } => output.end_pauses(now),
            Role::Switch(switch) => switch.on_timeout(now),
        }
        self.set_timer(node);
        self.after_switch(node);
        for port in 0..self.nodes[node].lines.len() {
            self.kick(node, port);
        }
    }

    /// Sends the pauses that the switch has decided on.
    fn after_switch(&mut self, node: usize) {
        loop {
            let Role::Switch(switch) = &mut self.nodes[node].role else { return };
            let Some(port) = switch.next_pausing_port() else { return };
            self.set_timer(node);
            self.kick(node, port);
        }
    }

    fn set_timer(&mut self, node: usize) {
        let next = match &self.nodes[node].role {
            Role::Host { output, .. } => output.next_resume(),
            Role::Switch(switch) => switch.next_timeout(),
        };
        let Some(next) = next else { return };
        let at = next.as_nanos().saturating_mul(PICOS as u64).max(self.now);
        if self.nodes[node].timer.is_none_or(|timer| timer > at) {
            self.nodes[node].timer = Some(at);
            self.schedule(at, Event::Timer(node as u32));
        }
    }
}

const PICOS: u128 = 1000;
const PICOS_PER_SEC: u128 = 1_000_000_000_000;
/// Distance between the seeds of two fabrics' switches.
const SEED_STEP: u64 = 0x9e37_79b9_7f4a_7c15;
