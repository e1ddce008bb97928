//! Hosts with real engines, a network between them, and a clock that jumps.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use roce_simnet::{Fate, Impairment, LinkConfig, LinkId, Network, Time};
use roce_transport::{
    Endpoint, EndpointConfig, Instant, PostError, RecvWr, SendOperation, SendWr, TransmitLimits,
    WrData,
};
use roce_wire::{Frame, ICRC_LEN, Operation, Psn, Qpn, UdpChecksum, seal};

use crate::event_recorder::EventRecorder;
use crate::host::Host;
use crate::timeline::{Event, EventKind, PacketRecord, Timeline};

/// How a [`World`] is built.
#[derive(Clone, Debug)]
pub struct WorldConfig {
    /// One way along one link. Two hosts share one link; more hosts have a link each to a
    /// switch, so that a packet crosses two.
    pub delay: Duration,
    /// Two hosts have a switch between them as well.
    pub always_switch: bool,
    /// Bits a second of every link in either direction; `None` takes no time.
    pub bits_per_sec: Option<u64>,
    /// Packets that an engine hands to its link at a time, at least 1: its trains are no
    /// longer. They cross the network one by one in any case.
    pub train_packets: usize,
    /// Keep a timeline. Without, a world costs no memory but its own.
    pub keep_timeline: bool,
    /// How the engines behave.
    pub endpoint: EndpointConfig,
}

impl Default for WorldConfig {
    /// A microsecond, no rate, trains of 16, a timeline.
    fn default() -> Self {
        Self {
            delay: Duration::from_micros(1),
            always_switch: false,
            bits_per_sec: None,
            train_packets: 16,
            keep_timeline: true,
            endpoint: EndpointConfig::default(),
        }
    }
}

/// Hosts with real engines, a network between them, and a clock that jumps to the next thing
/// that happens. Frames are whole: outer headers, ICRC, checked on arrival.
///
/// A host's engine is asked for more only when its link is free, as a network card asks: an
/// acknowledgement never waits behind a window full of data.
///
/// ```
/// use roce_lab::{Connection, World, WorldConfig, default_options};
/// use roce_transport::{AccessFlags, RecvWr, SendOperation, SendWr};
///
/// let mut world = World::new(&["alice", "bob"], WorldConfig::default());
/// let [alice, bob] = Connection::open(&mut world, [0, 1], default_options()).ends;
/// let letter = world.host_mut(0).memory.register(100, AccessFlags::ALL);
/// let inbox = world.host_mut(1).memory.register(100, AccessFlags::ALL);
/// world.post_recv(bob, RecvWr::new(1, [inbox.piece(0, 100)])).unwrap();
/// let work = SendWr::new(2, SendOperation::send(), [letter.piece(0, 100)]);
/// world.post_send(alice, work.signaled()).unwrap();
/// while world.step() {}
/// assert_eq!(world.timeline().packets.len(), 2, "the SEND and its ACK");
/// ```
#[derive(Debug)]
pub struct World {
    hosts: Vec<Host>,
    network: Network,
    links: Vec<LinkId>,
    config: WorldConfig,
    timeline: Timeline,
    /// Highest PSN sent so far in each direction of a queue pair: requests, answers.
    sent: HashMap<(usize, Qpn, bool), Psn>,
    scratch: Vec<u8>,
}

/// One end of a connection: a queue pair of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Place of the host in the world.
    pub host: usize,
    /// Its queue pair.
    pub qpn: Qpn,
}

/// Bytes that a frame takes on an Ethernet besides those of a capture: preamble 8, frame check
/// 4, gap 12. Here the number of the packet rides in them.
pub const WIRE_OVERHEAD: usize = 24;

/// The most room that outer headers take.
const HEADROOM: usize = 64;
/// The longest UDP payload of one frame.
const MAX_TRAIN: usize = 65_535 - 40 - 8;

impl World {
    /// Hosts of these names on one switch, or on one link when there are two.
    ///
    /// # Panics
    /// Without hosts, or with more than 65 534.
    pub fn new<N: AsRef<str>>(names: &[N], config: WorldConfig) -> Self {
        assert!(!names.is_empty() && names.len() < 0xffff, "1 to 65534 hosts");
        let mut network = Network::new();
        let link = LinkConfig {
            latency: config.delay,
            bits_per_sec: config.bits_per_sec,
            queue_frames: usize::MAX,
        };
        let hosts: Vec<Host> = names
            .iter()
            .enumerate()
            .map(|(place, name)| {
                let recorder = EventRecorder::new(config.keep_timeline);
                let endpoint = Endpoint::with_observer(config.endpoint.clone(), recorder);
                Host::new(place, name.as_ref().to_owned(), network.add_host(), endpoint)
            })
            .collect();
        let links = match &hosts[..] {
            [a, b] if !config.always_switch => vec![network.connect(a.node, b.node, link); 2],
            hosts => {
                let switch = network.add_switch();
                let lay = |host: &Host| {
                    let id = network.connect(switch, host.node, link);
                    network.set_route(switch, host.mac.0, id);
                    id
                };
                hosts.iter().map(lay).collect()
            }
        };
        Self {
            hosts,
            network,
            links,
            config,
            timeline: Timeline::default(),
            sent: HashMap::new(),
            scratch: vec![0; HEADROOM + MAX_TRAIN],
        }
    }

    /// The virtual now.
    pub fn now(&self) -> Instant {
        Instant::from_nanos(self.network.now().as_nanos())
    }

    /// All hosts, in their places.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// A host, for its memory and completions.
    ///
    /// # Panics
    /// When there is none in this place.
    pub fn host_mut(&mut self, place: usize) -> &mut Host {
        &mut self.hosts[place]
    }

    /// How it was built.
    pub fn config(&self) -> &WorldConfig {
        &self.config
    }

    /// What happened so far; empty when none is kept.
    pub fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// The same, for keeps.
    pub fn into_timeline(self) -> Timeline {
        self.timeline
    }

    /// What hits the frames that `host` sends from now on.
    ///
    /// # Panics
    /// When there is no such host.
    pub fn set_impairment(&mut self, host: usize, impairment: Impairment) {
        self.hosts[host].fates = impairment.clone();
        self.network.set_impairment(self.links[host], self.hosts[host].node, impairment);
    }

    /// Posts a request; what it makes the engine send leaves at once.
    ///
    /// # Errors
    /// What the engine says.
    pub fn post_send(&mut self, end: End, work: SendWr) -> Result<(), PostError> {
        let now = self.now();
        let host = &mut self.hosts[end.host];
        let kind = self.config.keep_timeline.then(|| EventKind::Posted {
            wr_id: work.wr_id,
            what: describe(&work.operation, &work.data),
        });
        // First what is posted, then what that leads to.
        host.endpoint.observer_mut().record_if(now, end.qpn, kind);
        let posted = host.endpoint.post_send(now, end.qpn, work);
        if posted.is_err() {
            host.endpoint.observer_mut().discard_last();
        }
        self.drain(end.host);
        posted
    }

    /// Posts a receive.
    ///
    /// # Errors
    /// What the engine says.
    pub fn post_recv(&mut self, end: End, work: RecvWr) -> Result<(), PostError> {
        let now = self.now();
        let host = &mut self.hosts[end.host];
        let kind = self.config.keep_timeline.then(|| EventKind::Posted {
            wr_id: work.wr_id,
            what: format!("a receive of {} bytes", work.sg_list.total_len()),
        });
        host.endpoint.observer_mut().record_if(now, end.qpn, kind);
        let posted = host.endpoint.post_recv(now, end.qpn, work);
        if posted.is_err() {
            host.endpoint.observer_mut().discard_last();
        }
        self.drain(end.host);
        posted
    }

    /// Writes a remark of the script's into the timeline.
    pub fn record_script(&mut self, host: usize, what: impl Into<String>) {
        let (at, kind) = (self.now(), EventKind::Scripted { what: what.into() });
        if self.config.keep_timeline {
            self.timeline.events.push(Event { at, host, qpn: None, kind });
        }
    }

    /// Writes into the timeline what the program on a host did; the words are made only when a
    /// timeline is kept.
    pub(crate) fn record_program(&mut self, host: usize, what: impl FnOnce() -> String) {
        if self.config.keep_timeline {
            let (at, kind) = (self.now(), EventKind::Program { what: what() });
            self.timeline.events.push(Event { at, host, qpn: None, kind });
        }
    }

    /// Calls the engine of one host, then takes what it has to say.
    pub(crate) fn with_engine<T>(
        &mut self,
        host: usize,
        call: impl FnOnce(&mut Endpoint<EventRecorder>, Instant) -> T,
    ) -> T {
        let now = self.now();
        let result = call(&mut self.hosts[host].endpoint, now);
        self.drain(host);
        result
    }

    /// Is nothing on its way and nothing posted that is not done? A timer may still run, but it
    /// will find nothing to do.
    pub fn is_at_rest(&self) -> bool {
        let is_idle = |host: &Host| {
            let mut pairs = host.queue_pairs.iter().filter_map(|qpn| host.endpoint.query_qp(*qpn));
            !host.may_have_more && pairs.all(|info| info.sends_outstanding == 0)
        };
        self.network.in_flight() == 0 && self.hosts.iter().all(is_idle)
    }

    /// When the next thing happens by itself; `None` when nothing ever will.
    pub fn next_event(&self) -> Option<Instant> {
        let wake_up = |host: &Host| {
            let timer = host.endpoint.poll_timeout().map(|at| Time::from_nanos(at.as_nanos()));
            timer.into_iter().chain(host.may_have_more.then_some(host.busy_until)).min()
        };
        let wake_ups = self.hosts.iter().filter_map(wake_up);
        let next = wake_ups.chain(self.network.next_event()).min()?;
        Some(Instant::from_nanos(next.as_nanos()))
    }

    /// Jumps to the next thing that happens; false when nothing ever will.
    pub fn step(&mut self) -> bool {
        let Some(next) = self.next_event() else { return false };
        self.advance_to(next);
        true
    }

    /// Lets time pass up to `moment`, with all that happens by then.
    pub fn run_until(&mut self, moment: Instant) {
        while let Some(next) = self.next_event().filter(|next| *next <= moment) {
            self.advance_to(next);
        }
        self.network.advance_to(Time::from_nanos(moment.as_nanos()));
    }

    fn advance_to(&mut self, time: Instant) {
        self.network.advance_to(Time::from_nanos(time.as_nanos()));
        let now = self.now();
        for place in 0..self.hosts.len() {
            let mut has_news = false;
            while let Some(arrival) = self.network.receive(self.hosts[place].node) {
                self.deliver(place, &arrival.bytes);
                has_news = true;
            }
            let host = &mut self.hosts[place];
            if host.endpoint.poll_timeout().is_some_and(|at| at <= now) {
                host.endpoint.handle_timeout(now);
                has_news = true;
            }
            let is_free = host.may_have_more && host.busy_until.as_nanos() <= now.as_nanos();
            if has_news || is_free {
                self.drain(place);
            }
        }
    }

    /// A frame comes in: parse it, check its ICRC, hand it to the engine.
    fn deliver(&mut self, place: usize, bytes: &[u8]) {
        let now = self.now();
        let Some((frame, trailer)) = bytes.split_last_chunk::<WIRE_OVERHEAD>() else { return };
        let number = trailer.first_chunk().map_or(u64::MAX, |number| u64::from_be_bytes(*number));
        if let Some(record) = self.timeline.packets.get_mut(number as usize) {
            record.arrivals.push(now);
        }
        let Host { endpoint, memory, .. } = &mut self.hosts[place];
        let refused = match Frame::parse(frame) {
            Err(why) => Some(why.to_string()),
            Ok(frame) => {
                let packet = frame.packets(None).next();
                match packet.map(|packet| packet.map(|packet| packet.verify_icrc())) {
                    Some(Ok(Ok(packet))) => {
                        endpoint.handle_packet(now, &packet, memory);
                        None
                    }
                    Some(Ok(Err(why))) => Some(why.to_string()),
                    Some(Err(why)) => Some(why.to_string()),
                    None => Some("it holds no packet".to_owned()),
                }
            }
        };
        if let Some(why) = refused.filter(|_| self.config.keep_timeline) {
            let kind = EventKind::FrameRefused { why };
            self.timeline.events.push(Event { at: now, host: place, qpn: None, kind });
        }
    }

    /// Takes everything that an engine has to say, in the order its documentation asks for.
    fn drain(&mut self, place: usize) {
        let now = self.now();
        let limits = TransmitLimits { max_packets: self.config.train_packets.max(1) };
        self.hosts[place].may_have_more = true;
        while self.hosts[place].busy_until.as_nanos() <= now.as_nanos() {
            let Host { endpoint, memory, .. } = &mut self.hosts[place];
            let room = &mut self.scratch[HEADROOM..];
            let Some(train) = endpoint.poll_transmit(now, memory, limits, room) else {
                self.hosts[place].may_have_more = false;
                break;
            };
            // Before the packets, so that the timeline says first what made them.
            self.take_events(place);
            self.emit(place, train.path.0 as usize, train.segment_len, train.len);
        }
        let host = &mut self.hosts[place];
        while let Some(completion) = host.endpoint.poll_completion() {
            host.completions.push_back(completion);
        }
        self.take_events(place);
        while let Some(event) = self.hosts[place].endpoint.poll_event() {
            if self.config.keep_timeline {
                let kind = EventKind::Async(event);
                self.timeline.events.push(Event { at: now, host: place, qpn: None, kind });
            }
        }
    }

    fn take_events(&mut self, place: usize) {
        let Self { hosts, timeline, .. } = self;
        let taken = hosts[place].endpoint.observer_mut().take();
        let events = taken.map(|(at, qpn, kind)| Event { at, host: place, qpn, kind });
        timeline.events.extend(events);
    }

    /// A train leaves, packet by packet: outer headers and ICRC, then the link.
    fn emit(&mut self, from: usize, to: usize, segment_len: usize, len: usize) {
        let outer = self.hosts[from].outer_to(&self.hosts[to]);
        let link = LinkConfig {
            bits_per_sec: self.config.bits_per_sec,
            ..LinkConfig::with_latency(Duration::ZERO)
        };
        for start in (0..len).step_by(segment_len) {
            let segment = &self.scratch[HEADROOM..][start..len.min(start + segment_len)];
            let frame_len = outer.len() + segment.len();
            let mut bytes = Vec::with_capacity(frame_len + WIRE_OVERHEAD);
            bytes.resize(outer.len(), 0);
            bytes.extend_from_slice(segment);
            let host = &mut self.hosts[from];
            let identification = host.identification;
            host.identification = identification.wrapping_add(1);
            seal(&outer, identification, &mut bytes, segment.len(), UdpChecksum::Zero)
                .expect("an engine writes sound trains");
            let number = self.timeline.packets.len() as u64;
            let leaves = host.busy_until.max(self.network.now());
            host.busy_until = leaves + link.time_on_wire(frame_len + WIRE_OVERHEAD);
            let fate = host.fates.next_fate(frame_len + WIRE_OVERHEAD);
            let sealed_len = bytes.len();
            bytes.extend_from_slice(&number.to_be_bytes());
            bytes.resize(frame_len + WIRE_OVERHEAD, 0);
            // The network and the timeline share it.
            let bytes = Bytes::from(bytes);
            if self.config.keep_timeline {
                let frame = bytes.slice(..sealed_len);
                let again = self.is_again(from, &frame[outer.len()..]);
                self.timeline.packets.push(PacketRecord {
                    from,
                    to,
                    sent: Instant::from_nanos(leaves.as_nanos()),
                    arrivals: Vec::new(),
                    lost: fate == Fate::Drop,
                    damaged: matches!(fate, Fate::Corrupt { .. }),
                    again,
                    events_before: self.timeline.events.len(),
                    frame,
                });
            }
            self.network.send(self.hosts[from].node, bytes);
        }
    }

    /// Has this PSN been sent before, in this direction and role?
    fn is_again(&mut self, from: usize, packet: &[u8]) -> bool {
        let Some(body) = packet.len().checked_sub(ICRC_LEN).and_then(|end| packet.get(..end))
        else {
            return false;
        };
        let Ok((headers, _)) = roce_wire::Headers::parse(body) else { return false };
        let info = headers.bth.opcode.info();
        if info.operation == Operation::Acknowledge {
            return false;
        }
        let psn = headers.bth.psn;
        let key = (from, headers.bth.dest_qp, info.is_request());
        let highest = self.sent.entry(key).or_insert(psn.previous());
        let is_new = psn.distance_from(*highest) > 0;
        if is_new {
            *highest = psn;
        }
        !is_new
    }
}

fn describe(operation: &SendOperation, data: &WrData) -> String {
    let len = data.len();
    let at = |remote: &roce_transport::RemoteAddr| {
        format!("at {:#x} under key {:#x}", remote.addr, remote.rkey)
    };
    match operation {
        SendOperation::Send { immediate: Some(immediate), .. } => {
            format!("SEND {len} bytes with immediate {:#010x}", u32::from_be_bytes(*immediate))
        }
        SendOperation::Send { .. } => format!("SEND {len} bytes"),
        SendOperation::Write { remote, immediate: None } => {
            format!("WRITE {len} bytes {}", at(remote))
        }
        SendOperation::Write { remote, immediate: Some(immediate) } => format!(
            "WRITE {len} bytes {} with immediate {:#010x}",
            at(remote),
            u32::from_be_bytes(*immediate)
        ),
        SendOperation::Read { remote } => format!("READ {len} bytes {}", at(remote)),
        SendOperation::CompareSwap { remote, compare, swap } => {
            format!("compare-and-swap {compare} by {swap} {}", at(remote))
        }
        SendOperation::FetchAdd { remote, add } => format!("fetch-and-add {add} {}", at(remote)),
        SendOperation::LocalInvalidate { key } => format!("invalidate key {key:#x}"),
    }
}
