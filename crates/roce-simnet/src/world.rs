//! Simulated hosts with real engines and a network, in virtual time.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use roce_fabric::{EthernetFrame, Fabric, Fate, Impairment, LinkConfig};
use roce_transport::{
    Destination, Endpoint, Instant, ModifySrqError, PostError, RecvWr, SendOperation, SendWr,
    SrqAttributes, SrqHandle, SrqInit, Transmit, TransmitLimits, WrData,
};
use roce_wire::{Ecn, Frame, ICRC_LEN, Operation, Psn, Qpn, Service, UdpChecksum, seal};

use crate::carrier::{Arrived, Carrier, Outgoing};
use crate::config::{WIRE_OVERHEAD, WorldConfig};
use crate::event_recorder::EventRecorder;
use crate::host::Host;
use crate::timeline::{Event, EventKind, PacketRecord, Timeline};

/// Simulated hosts with real engines and a network. Virtual time advances from event to event. Frames
/// have outer headers and an ICRC, which is checked on arrival.
///
/// An engine transmits only while its link is free, as with a network card, so an ACK does not wait
/// behind a full send window.
///
/// ```
/// use roce_simnet::{Connection, World, WorldConfig, default_options};
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
    carrier: Carrier,
    config: WorldConfig,
    timeline: Timeline,
    /// Highest PSN sent so far by a queue pair: requests, responses.
    sent: HashMap<(usize, Qpn, bool), Psn>,
    scratch: Vec<u8>,
}

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Index of the host.
    pub host: usize,
    /// Queue pair of the host.
    pub qpn: Qpn,
}

/// Maximum length of outer headers in bytes.
const HEADROOM: usize = 64;
/// Maximum UDP payload of a frame in bytes.
const MAX_TRAIN: usize = 65_535 - 40 - 8;

impl World {
    /// Creates hosts with these names, on a switch, or two on a link.
    ///
    /// # Panics
    /// Without hosts, or with more than 65 534.
    pub fn new<N: AsRef<str>>(names: &[N], config: WorldConfig) -> Self {
        assert!(!names.is_empty() && names.len() < 0xffff, "1 to 65534 hosts");
        let hosts: Vec<Host> = names
            .iter()
            .enumerate()
            .map(|(place, name)| {
                let recorder = EventRecorder::new(config.keep_timeline);
                let endpoint = Endpoint::with_observer(config.endpoint.clone(), recorder);
                Host::new(place, name.as_ref().to_owned(), endpoint)
            })
            .collect();
        let carrier = Carrier::new(&hosts, &config);
        Self {
            hosts,
            carrier,
            config,
            timeline: Timeline::default(),
            sent: HashMap::new(),
            scratch: vec![0; HEADROOM + MAX_TRAIN],
        }
    }

    /// Returns the virtual time.
    pub fn now(&self) -> Instant {
        self.carrier.now()
    }

    /// Returns all hosts.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// Returns a host, for access to its memory and completions.
    ///
    /// # Panics
    /// If the index is out of range.
    pub fn host_mut(&mut self, place: usize) -> &mut Host {
        &mut self.hosts[place]
    }

    /// Returns the configuration.
    pub fn config(&self) -> &WorldConfig {
        &self.config
    }

    /// Returns the timeline; empty if none is kept.
    pub fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// Returns the timeline by value.
    pub fn into_timeline(self) -> Timeline {
        self.timeline
    }

    /// Sets the faults of frames that `host` sends from now on.
    ///
    /// # Panics
    /// If the index is out of range.
    pub fn set_impairment(&mut self, host: usize, impairment: Impairment) {
        self.hosts[host].fates = impairment.clone();
        self.carrier.set_impairment(host, impairment);
    }

    /// Returns the fabric that carries the frames, if there is one.
    pub fn fabric_mut(&mut self) -> Option<&mut Fabric<EthernetFrame>> {
        self.carrier.fabric()
    }

    /// Posts a request and transmits its packets.
    ///
    /// # Errors
    /// The error of the engine.
    pub fn post_send(&mut self, end: End, work: SendWr) -> Result<(), PostError> {
        self.post(end, work, None)
    }

    /// Posts a datagram and transmits it.
    ///
    /// # Errors
    /// The error of the engine.
    pub fn post_send_to(
        &mut self,
        end: End,
        work: SendWr,
        to: Destination,
    ) -> Result<(), PostError> {
        self.post(end, work, Some(to))
    }

    fn post(&mut self, end: End, work: SendWr, to: Option<Destination>) -> Result<(), PostError> {
        let now = self.now();
        let host = &mut self.hosts[end.host];
        let kind = self.config.keep_timeline.then(|| {
            let mut what = describe(&work.operation, &work.data);
            if let Some(Destination { path, qpn, q_key, .. }) = to {
                let (host, qpn) = (path.remote, qpn.get());
                what += &format!(" to {host}, queue pair {qpn:#x}, Q_Key {q_key:#x}");
            }
            EventKind::Posted { wr_id: work.wr_id, what }
        });
        // Record the post before the packets that follow from it.
        host.endpoint.observer_mut().record_if(now, end.qpn, kind);
        let posted = match to {
            Some(to) => host.endpoint.post_send_to(now, end.qpn, work, to),
            None => host.endpoint.post_send(now, end.qpn, work),
        };
        if posted.is_err() {
            host.endpoint.observer_mut().discard_last();
        }
        self.drain(end.host);
        posted
    }

    /// Posts a receive.
    ///
    /// # Errors
    /// The error of the engine.
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

    /// Creates a shared receive queue of 64 receives on a host.
    ///
    /// # Panics
    /// If the index is out of range.
    pub fn create_srq(&mut self, host: usize) -> SrqHandle {
        let init = SrqInit { pd: crate::PD, max_wr: 64, max_sge: 1 };
        self.with_engine(host, |engine, _| engine.create_srq(init).expect("a small queue"))
    }

    /// Arms the limit event of a shared receive queue.
    ///
    /// # Errors
    /// The error of the engine.
    pub fn arm_srq_limit(
        &mut self,
        host: usize,
        srq: SrqHandle,
        limit: u32,
    ) -> Result<(), ModifySrqError> {
        let armed = SrqAttributes { limit: Some(limit), ..SrqAttributes::default() };
        self.record_program(host, || format!("wants an event below {limit} shared receives"));
        self.with_engine(host, |engine, _| engine.modify_srq(srq, &armed))
    }

    /// Posts a receive to a shared receive queue.
    ///
    /// # Errors
    /// The error of the engine.
    pub fn post_srq_recv(
        &mut self,
        host: usize,
        srq: SrqHandle,
        work: RecvWr,
    ) -> Result<(), PostError> {
        let (id, len) = (work.wr_id, work.sg_list.total_len());
        let what = || format!("posts WR {id} to the shared queue: a receive of {len} bytes");
        self.with_engine(host, |engine, now| engine.post_srq_recv(now, srq, work))?;
        self.record_program(host, what);
        Ok(())
    }

    /// Adds a remark of the script to the timeline.
    pub fn record_script(&mut self, host: usize, what: impl Into<String>) {
        let (at, kind) = (self.now(), EventKind::Scripted { what: what.into() });
        if self.config.keep_timeline {
            self.timeline.events.push(Event { at, host, qpn: None, kind });
        }
    }

    /// Adds an action of a host's program to the timeline. The text is made only if a timeline is
    /// kept.
    pub fn record_program(&mut self, host: usize, what: impl FnOnce() -> String) {
        if self.config.keep_timeline {
            let (at, kind) = (self.now(), EventKind::Program { what: what() });
            self.timeline.events.push(Event { at, host, qpn: None, kind });
        }
    }

    /// Calls the engine of a host, then handles its output.
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

    /// Returns true if no frame is in flight and no request is outstanding. A timer may still run, but
    /// has nothing to do.
    pub fn is_at_rest(&self) -> bool {
        let is_idle = |host: &Host| {
            let mut pairs = host.queue_pairs.iter().filter_map(|qpn| host.endpoint.query_qp(*qpn));
            !host.may_have_more && pairs.all(|info| info.sends_outstanding == 0)
        };
        self.carrier.is_empty() && self.hosts.iter().all(is_idle)
    }

    /// Returns the time of the next event, if any.
    pub fn next_event(&self) -> Option<Instant> {
        let wake_up = |host: &Host| {
            let timer = host.endpoint.poll_timeout();
            // A fabric tells when the link is free.
            let is_busy = host.may_have_more && self.config.fabric.is_none();
            timer.into_iter().chain(is_busy.then_some(host.busy_until)).min()
        };
        let wake_ups = self.hosts.iter().filter_map(wake_up);
        let next = wake_ups.chain(self.carrier.next_event()).min()?;
        Some(next)
    }

    /// Advances to the next event; returns false without one.
    pub fn step(&mut self) -> bool {
        let Some(next) = self.next_event() else { return false };
        self.advance_to(next);
        true
    }

    /// Advances to `moment` and handles all events until then.
    pub fn run_until(&mut self, moment: Instant) {
        while let Some(next) = self.next_event().filter(|next| *next <= moment) {
            self.advance_to(next);
        }
        self.advance_to(moment);
    }

    /// Advances to the next event that concerns a host, at most to `moment`. On a fabric that is much
    /// cheaper than [`step`](Self::step), which stops at each event of a switch.
    pub fn run_to_next(&mut self, moment: Instant) {
        if self.config.fabric.is_none() {
            let next = self.next_event();
            return self.advance_to(next.map_or(moment, |next| next.min(moment)));
        }
        let timers = self.hosts.iter().filter_map(|host| host.endpoint.poll_timeout());
        let moment = timers.chain([moment]).min().unwrap_or(moment).max(self.now());
        let news = self.carrier.advance_to_news(moment);
        self.handle_news(news);
    }

    fn advance_to(&mut self, time: Instant) {
        let news = self.carrier.advance_to(time);
        self.handle_news(news);
    }

    /// Handles frames that arrived, links that became free and due timers.
    fn handle_news(&mut self, (arrived, free): (Vec<Arrived>, Vec<usize>)) {
        let now = self.now();
        let mut arrived = arrived.into_iter().peekable();
        for place in 0..self.hosts.len() {
            let mut has_news = free.contains(&place);
            while let Some(Arrived { frame, number, .. }) = arrived.next_if(|it| it.host == place) {
                self.deliver(place, &frame, number);
                has_news = true;
            }
            let host = &mut self.hosts[place];
            if host.endpoint.poll_timeout().is_some_and(|at| at <= now) {
                host.endpoint.handle_timeout(now);
                has_news = true;
            }
            let is_free = host.may_have_more && host.busy_until <= now;
            if has_news || is_free {
                self.drain(place);
            }
        }
    }

    /// Handles a received frame: parses it, checks its ICRC, passes it to the engine.
    fn deliver(&mut self, place: usize, frame: &[u8], number: Option<usize>) {
        let now = self.now();
        let record = number.and_then(|number| self.timeline.packets.get_mut(number));
        if let Some(record) = record {
            record.arrivals.push(now);
        }
        let Host { endpoint, memory, arrived_bytes, .. } = &mut self.hosts[place];
        let refused = match Frame::parse(frame) {
            Err(why) => Some(why.to_string()),
            Ok(frame) => {
                let packet = frame.packets(None).next();
                match packet.map(|packet| packet.map(|packet| packet.verify_icrc())) {
                    Some(Ok(Ok(packet))) => {
                        let len = packet.payload().len() as u64;
                        *arrived_bytes.entry(packet.headers().bth.dest_qp).or_default() += len;
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

    /// Handles all output of an engine, in the order that its documentation requires.
    fn drain(&mut self, place: usize) {
        let now = self.now();
        let limits = TransmitLimits { max_packets: self.config.train_packets.max(1) };
        self.hosts[place].may_have_more = true;
        while self.hosts[place].busy_until <= now && self.carrier.takes(place) {
            let Host { endpoint, memory, .. } = &mut self.hosts[place];
            let room = &mut self.scratch[HEADROOM..];
            let Some(train) = endpoint.poll_transmit(now, memory, limits, room) else {
                self.hosts[place].may_have_more = false;
                break;
            };
            // Events before packets: the timeline shows causes first.
            self.take_events(place);
            self.emit(place, &train);
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

    /// Sends a train packet by packet, with outer headers and ICRC.
    fn emit(&mut self, from: usize, train: &Transmit) {
        let Transmit { segment_len, len, .. } = *train;
        let to = train.path.0 as usize;
        let mut outer = self.hosts[from].outer_to(&self.hosts[to]);
        outer.traffic_class = train.traffic_class.unwrap_or(self.config.traffic_class);
        let is_fabric = self.config.fabric.is_some();
        if is_fabric {
            outer.source_port = roce_wire::source_port_for(train.qpn, train.dest_qpn, 0);
        }
        let five_tuple = [from as u64, to as u64, u64::from(outer.source_port)];
        let flow_hash = five_tuple.iter().fold(0, |hash, it| hash << 20 ^ it);
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
            let leaves = host.busy_until.max(self.carrier.now());
            host.busy_until = leaves + link.time_on_wire(frame_len + WIRE_OVERHEAD);
            let sealed_len = bytes.len();
            bytes.extend_from_slice(&number.to_be_bytes());
            bytes.resize(frame_len + WIRE_OVERHEAD, 0);
            let is_cut = self.config.lost_packets.contains(&(number as usize));
            // A link counts the packets that reach it.
            let fate = if is_cut { Fate::Drop } else { host.fates.next_fate(&bytes) };
            // Shared by the network and the timeline.
            let bytes = Bytes::from(bytes);
            if self.config.keep_timeline {
                let frame = bytes.slice(..sealed_len);
                let again = self.is_again(from, &frame[outer.len()..]);
                self.timeline.packets.push(PacketRecord {
                    from,
                    to,
                    sent: leaves,
                    arrivals: Vec::new(),
                    lost: fate == Fate::Drop,
                    damaged: matches!(fate, Fate::Corrupt { .. }),
                    marked: fate == Fate::Mark
                        && Ecn::from_traffic_class(outer.traffic_class) != Ecn::NotCapable,
                    again,
                    events_before: self.timeline.events.len(),
                    frame,
                });
            }
            // Links do to the frame what its fate says; on a fabric it can only be lost.
            if is_cut || (is_fabric && fate == Fate::Drop) {
                self.hosts[from].lost_frames += 1;
            } else {
                let traffic_class = outer.traffic_class;
                self.carrier.send(from, Outgoing { to, bytes, traffic_class, flow_hash });
            }
        }
    }

    /// Returns true if a packet with this PSN, direction and role was sent before.
    fn is_again(&mut self, from: usize, packet: &[u8]) -> bool {
        let Some(body) = packet.len().checked_sub(ICRC_LEN).and_then(|end| packet.get(..end))
        else {
            return false;
        };
        let Ok((headers, _)) = roce_wire::Headers::parse(body) else { return false };
        let info = headers.bth.opcode.info();
        // The PSNs of datagrams to one queue pair are those of many senders; a CNP has none.
        if info.operation == Operation::Acknowledge
            || matches!(info.service, Service::Ud | Service::Cnp | Service::Extension)
        {
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
        SendOperation::AtomicWrite { remote, value } => {
            format!("ATOMIC WRITE {value} {}", at(remote))
        }
        SendOperation::Flush { remote, len, .. } => format!("FLUSH {len} bytes {}", at(remote)),
        SendOperation::LocalInvalidate { key } => format!("invalidate key {key:#x}"),
        SendOperation::BindWindow(to) => {
            format!("bind window key {:#x} to {} bytes at {:#x}", to.rkey(), to.len, to.addr)
        }
    }
}
