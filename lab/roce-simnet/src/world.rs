//! Simulated hosts with real engines and a network, in virtual time.

use bytes::Bytes;
use roce_fabric::{EthernetFrame, Fabric, Fate, Impairment, NetworkStats};
use roce_transport::{
    Destination, Endpoint, Instant, Memory, ModifySrqError, PostError, RecvWr, SendWr,
    SrqAttributes, SrqHandle, SrqInit, Transmit,
};
use roce_wire::{Ecn, Qpn, UdpChecksum, seal};

use crate::carrier::{Arrived, Carrier, Outgoing};
use crate::config::WorldConfig;
use crate::event_recorder::EventRecorder;
use crate::host::Host;
use crate::sent_psns::SentPsns;
use crate::tap::{Tap, Tapped};
use crate::timeline::{Event, EventKind, PacketRecord, Timeline, describe};
use crate::{Driver, Regions};

/// Simulated hosts with real engines and a network. Virtual time advances from event to event. Frames
/// have outer headers and an ICRC, which is checked on arrival.
///
/// An engine transmits only while its link is free, as with a network card, so an ACK does not wait
/// behind a full send window; see [`WorldConfig::waits_for_link`].
///
/// The memory of its hosts is [`Regions`], or what [`with_memory`](Self::with_memory) is given: tests of
/// another [`Memory`] have real packets access it.
///
/// ```
/// use roce_simnet::{Connection, World, WorldConfig, default_options};
/// use roce_transport::{AccessFlags, RecvWr, SendOperation, SendWr};
///
/// let mut world = World::new(&["alice", "bob"], WorldConfig::default());
/// let [alice, bob] = Connection::open(&mut world, [0, 1], default_options()).ends;
/// let letter = world.hosts[0].memory.register(100, AccessFlags::ALL);
/// let inbox = world.hosts[1].memory.register(100, AccessFlags::ALL);
/// world.post_recv(bob, RecvWr::new(1, [inbox.piece(0, 100)])).unwrap();
/// let work = SendWr::new(2, SendOperation::send(), [letter.piece(0, 100)]);
/// world.post_send(alice, work.signaled()).unwrap();
/// while world.step() {}
/// assert_eq!(world.timeline().packets.len(), 2, "the SEND and its ACK");
/// ```
#[derive(Debug)]
pub struct World<M = Regions> {
    /// All hosts.
    pub hosts: Box<[Host<M>]>,
    carrier: Carrier,
    config: WorldConfig,
    timeline: Timeline,
    sent: SentPsns,
    tap: Option<Tap>,
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
/// Number of trains at one instant beyond which an engine does not come to an end.
const MAX_TRAINS: usize = 100_000;

impl World {
    /// Creates hosts with these names, on a switch, or two on a link.
    ///
    /// # Panics
    /// Without hosts, or with more than 65 534.
    pub fn new<N: AsRef<str>>(names: &[N], config: WorldConfig) -> Self {
        Self::with_memory(names, config, Regions::default)
    }
}

impl<M: Memory> World<M> {
    /// Creates hosts as [`new`](World::new) does, each with what `memory` returns.
    ///
    /// # Panics
    /// As [`new`](World::new).
    pub fn with_memory<N: AsRef<str>>(
        names: &[N],
        mut config: WorldConfig,
        memory: impl Fn() -> M,
    ) -> Self {
        config.whole_trains &= config.fabric.is_none();
        assert!(!names.is_empty() && names.len() < 0xffff, "1 to 65534 hosts");
        let hosts: Box<[Host<M>]> = names
            .iter()
            .enumerate()
            .map(|(place, name)| {
                let recorder = EventRecorder::new(config.keep_timeline);
                let endpoint = Endpoint::with_observer(config.endpoint.clone(), recorder);
                Host::new(place, name.as_ref().to_owned(), config.ipv6, endpoint, memory())
            })
            .collect();
        let macs: Vec<_> = hosts.iter().map(|host| host.mac).collect();
        let carrier = Carrier::new(&macs, &config);
        Self {
            hosts,
            carrier,
            config,
            timeline: Timeline::default(),
            sent: SentPsns::default(),
            tap: None,
            scratch: vec![0; HEADROOM + MAX_TRAIN],
        }
    }

    /// Returns the virtual time.
    pub fn now(&self) -> Instant {
        self.carrier.now()
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

    /// Keeps a timeline from now on, or no more.
    pub fn keep_timeline(&mut self, keep: bool) {
        self.config.keep_timeline = keep;
        self.hosts.iter_mut().for_each(|host| host.endpoint.observer_mut().keep(keep));
    }

    /// Calls `tap` with each frame that a host sends or receives from now on.
    pub fn set_tap(&mut self, tap: impl FnMut(Tapped<'_>) + Send + 'static) {
        self.tap = Some(Tap(Box::new(tap)));
    }

    /// Returns what became of the frames on the links; nothing on a fabric.
    pub fn link_stats(&self) -> NetworkStats {
        self.carrier.stats()
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
        let wr_id = work.wr_id;
        let what = self.config.keep_timeline.then(|| describe(&work.operation, &work.data));
        let post = |host: &mut Host<M>, now| host.endpoint.post_send(now, end.qpn, work);
        self.post(end, wr_id, what, post)
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
        let wr_id = work.wr_id;
        let what = self.config.keep_timeline.then(|| {
            let (what, host, qpn) = (describe(&work.operation, &work.data), to.path.remote, to.qpn);
            format!("{what} to {host}, queue pair {:#x}, Q_Key {:#x}", qpn.get(), to.q_key)
        });
        let post = |host: &mut Host<M>, now| host.endpoint.post_send_to(now, end.qpn, work, to);
        self.post(end, wr_id, what, post)
    }

    /// Posts a receive.
    ///
    /// # Errors
    /// The error of the engine.
    pub fn post_recv(&mut self, end: End, work: RecvWr) -> Result<(), PostError> {
        let (wr_id, len) = (work.wr_id, work.sg_list.total_len());
        let what = self.config.keep_timeline.then(|| format!("a receive of {len} bytes"));
        let post = |host: &mut Host<M>, now| host.endpoint.post_recv(now, end.qpn, work);
        self.post(end, wr_id, what, post)
    }

    fn post(
        &mut self,
        end: End,
        wr_id: u64,
        what: Option<String>,
        post: impl FnOnce(&mut Host<M>, Instant) -> Result<(), PostError>,
    ) -> Result<(), PostError> {
        let kind = what.map(|what| EventKind::Posted { wr_id, what });
        self.with(end.host, |host, now| {
            // Record the post before the packets that follow from it.
            host.endpoint.observer_mut().record_if(now, end.qpn, kind);
            let posted = post(host, now);
            if posted.is_err() {
                host.endpoint.observer_mut().discard_last();
            }
            posted
        })
    }

    /// Creates a shared receive queue of 64 receives on a host.
    ///
    /// # Panics
    /// If the index is out of range.
    pub fn create_srq(&mut self, host: usize) -> SrqHandle {
        let init = SrqInit { pd: crate::PD, max_wr: 64, max_sge: 1 };
        self.with(host, |host, _| host.endpoint.create_srq(init).expect("a small queue"))
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
        self.with(host, |host, _| host.endpoint.modify_srq(srq, &armed))
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
        self.with(host, |host, now| host.endpoint.post_srq_recv(now, srq, work))?;
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

    /// Changes a host, calls its engine for instance, then handles the engine's output.
    ///
    /// # Panics
    /// If the index is out of range.
    pub fn with<T>(&mut self, host: usize, call: impl FnOnce(&mut Host<M>, Instant) -> T) -> T {
        let now = self.now();
        let result = call(&mut self.hosts[host], now);
        self.drain(host);
        result
    }

    /// Passes frames to a host as if they had just arrived together, then handles the engine's output.
    ///
    /// # Panics
    /// If the index is out of range.
    pub fn inject(&mut self, host: usize, frames: impl IntoIterator<Item: AsRef<[u8]>>) {
        for frame in frames {
            self.deliver(host, frame.as_ref(), None);
        }
        self.drain(host);
    }

    /// Returns true if no frame is in flight and no request is outstanding. A timer may still run, but
    /// has nothing to do.
    pub fn is_at_rest(&self) -> bool {
        let is_idle = |host: &Host<M>| {
            let mut pairs = host.queue_pairs.iter().filter_map(|qpn| host.endpoint.query_qp(*qpn));
            !host.may_have_more && pairs.all(|info| info.sends_outstanding == 0)
        };
        self.carrier.is_empty() && self.hosts.iter().all(is_idle)
    }

    /// Returns the time of the next event, if any.
    pub fn next_event(&self) -> Option<Instant> {
        self.wake_ups().chain(self.carrier.next_event()).min()
    }

    /// Returns when hosts have something to do, as far as the network does not tell.
    fn wake_ups(&self) -> impl Iterator<Item = Instant> {
        let now = self.now();
        // A fabric tells when the link is free.
        let is_on_link = self.config.fabric.is_none();
        self.hosts.iter().flat_map(move |host| {
            let wake_up = host.driver.wakes_at(now, host.endpoint.poll_timeout());
            let is_busy = is_on_link && host.may_have_more && host.busy_until > now;
            wake_up.into_iter().chain(is_busy.then_some(host.busy_until))
        })
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
        let moment = self.wake_ups().chain([moment]).min().unwrap_or(moment).max(self.now());
        let news = self.carrier.advance_to_news(moment);
        self.handle_news(news);
    }

    fn advance_to(&mut self, time: Instant) {
        let news = self.carrier.advance_to(time);
        self.handle_news(news);
    }

    /// Handles frames that arrived, links that became free and due timers.
    fn handle_news(&mut self, (arrived, free): (Vec<Arrived>, Vec<usize>)) {
        for Arrived { host, bytes } in arrived {
            self.hosts[host].inbox.push_back(bytes);
        }
        let now = self.now();
        let WorldConfig { eager, batch, timers_between_batches, .. } = self.config;
        for place in 0..self.hosts.len() {
            let host = &mut self.hosts[place];
            if !host.driver.runs(now) {
                continue;
            }
            // A driver that something keeps from its work may be free again.
            let is_hindered = host.driver != Driver::default();
            let is_free = host.may_have_more && host.busy_until <= now;
            for frame in std::mem::take(&mut host.unsent) {
                self.carrier.send(place, frame);
            }
            let mut has_news = is_hindered || is_free || free.contains(&place);
            let mut in_batch = 0;
            while let Some(bytes) = self.hosts[place].inbox.pop_front() {
                self.receive(place, bytes);
                has_news = true;
                in_batch += 1;
                if in_batch == batch {
                    if timers_between_batches {
                        self.hosts[place].handle_timers(now, false);
                    }
                    self.drain(place);
                    in_batch = 0;
                }
            }
            if self.hosts[place].handle_timers(now, eager) || has_news {
                self.drain(place);
            }
        }
    }

    /// Handles what arrived from the network: a frame, the length of a train's packets, the overhead.
    fn receive(&mut self, place: usize, mut bytes: Bytes) {
        if self.config.fabric.is_none() {
            let at = bytes.len().saturating_sub(self.config.wire_overhead);
            let number = bytes.split_off(at);
            let number = number.first_chunk().map(|number| u64::from_be_bytes(*number) as usize);
            let record = number.and_then(|number| self.timeline.packets.get_mut(number));
            if let Some(record) = record {
                record.arrivals.push(self.carrier.now());
            }
        }
        if !self.config.whole_trains {
            return self.deliver(place, &bytes, None);
        }
        let Some((frame, segment_len)) = bytes.split_last_chunk() else { return };
        let segment_len = usize::from(u16::from_be_bytes(*segment_len));
        self.deliver(place, frame, Some(segment_len).filter(|len| *len > 0));
    }

    /// Passes the packets of a frame to the engine.
    fn deliver(&mut self, place: usize, frame: &[u8], segment_len: Option<usize>) {
        let now = self.now();
        if let Some(Tap(tap)) = &mut self.tap {
            tap(Tapped { at: now, host: place, frame, segment_len });
        }
        let Self { hosts, timeline, config, .. } = self;
        hosts[place].handle_frame(now, frame, segment_len, |why| {
            if config.keep_timeline {
                let kind = EventKind::FrameRefused { why: why.to_string() };
                timeline.events.push(Event { at: now, host: place, qpn: None, kind });
            }
        });
    }

    /// Handles all output of an engine, in the order that its documentation requires.
    fn drain(&mut self, place: usize) {
        let now = self.now();
        let max_packets = self.config.train_packets.max(1);
        let host = &mut self.hosts[place];
        host.begin_transmit(now);
        host.may_have_more = true;
        let takes_one = std::mem::take(&mut host.driver.takes_one);
        let mut trains = 0;
        loop {
            let host = &mut self.hosts[place];
            let takes = host.driver.full_until <= now || (takes_one && trains == 0);
            if !takes || host.busy_until > now || !self.carrier.takes(place) {
                break;
            }
            let Some(train) = host.poll_train(now, max_packets, &mut self.scratch[HEADROOM..])
            else {
                host.may_have_more = false;
                break;
            };
            trains += 1;
            assert!(trains < MAX_TRAINS, "host {place} sends without end at {now:?}");
            // Events before packets: the timeline shows causes first.
            self.take_events(place);
            if self.hosts[place].driver.no_carrier_until <= now {
                self.emit(place, &train);
            }
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
            self.hosts[place].events.push(event);
        }
    }

    fn take_events(&mut self, place: usize) {
        let Self { hosts, timeline, .. } = self;
        let taken = hosts[place].endpoint.observer_mut().take();
        let events = taken.map(|(at, qpn, kind)| Event { at, host: place, qpn, kind });
        timeline.events.extend(events);
    }

    /// Sends a train, or its packets one by one, with outer headers and ICRCs.
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
        let WorldConfig { whole_trains, wire_overhead, .. } = self.config;
        let step = if whole_trains { len } else { segment_len };
        for start in (0..len).step_by(step) {
            let payload = &self.scratch[HEADROOM..][start..len.min(start + step)];
            let frame_len = outer.len() + payload.len();
            let mut bytes = Vec::with_capacity(frame_len + 2 + wire_overhead);
            bytes.resize(outer.len(), 0);
            bytes.extend_from_slice(payload);
            let host = &mut self.hosts[from];
            let (packets, identification) =
                (payload.len().div_ceil(segment_len), host.identification);
            host.identification = identification.wrapping_add(packets as u16);
            seal(&outer, identification, &mut bytes, segment_len, UdpChecksum::Zero)
                .expect("an engine writes sound trains");
            let segment_len = (packets > 1).then_some(segment_len);
            if let Some(Tap(tap)) = &mut self.tap {
                tap(Tapped { at: self.carrier.now(), host: from, frame: &bytes, segment_len });
            }
            if whole_trains {
                bytes.extend_from_slice(&(segment_len.unwrap_or(0) as u16).to_be_bytes());
            }
            let number = self.timeline.packets.len();
            let end = bytes.len() + wire_overhead;
            bytes.extend_from_slice(&(number as u64).to_be_bytes());
            bytes.resize(end, 0);
            let leaves = host.busy_until.max(self.carrier.now());
            if self.config.waits_for_link {
                host.busy_until = leaves + self.config.link.time_on_wire(end);
            }
            let is_cut = self.config.lost_packets.contains(&number);
            // A link counts the packets that reach it.
            let fate = if is_cut { Fate::Drop } else { host.fates.next_fate(&bytes) };
            // Shared by the network and the timeline.
            let bytes = Bytes::from(bytes);
            if self.config.keep_timeline {
                let frame = bytes.slice(..frame_len);
                let again = self.sent.is_again(from, &frame[outer.len()..]);
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
                    segment_len,
                });
            }
            // Links do to the frame what its fate says; on a fabric it can only be lost.
            if is_cut || (is_fabric && fate == Fate::Drop) {
                self.hosts[from].lost_frames += 1;
                continue;
            }
            let traffic_class = outer.traffic_class;
            let frame = Outgoing { to, bytes, frame_len, traffic_class, flow_hash };
            let host = &mut self.hosts[from];
            match host.driver.runs(self.carrier.now()) {
                true => self.carrier.send(from, frame),
                false => host.unsent.push(frame),
            }
        }
    }
}
