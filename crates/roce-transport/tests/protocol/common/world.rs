//! Endpoints, a network between them and a clock that jumps: whole frames, real ICRCs.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use roce_fabric::{Impairment, LinkConfig, LinkId, Network, NodeId};
use roce_transport::{
    AsyncEvent, Completion, CqHandle, Endpoint, EndpointConfig, Instant, Observer, PacketSealer,
    PathHandle, TransmitLimits, TransmitQueue,
};
use roce_wire::{
    Frame, Headers, KnownOpcode, MacAddr, NakCode, OuterHeaders, Psn, Qpn, Syndrome, UdpChecksum,
    seal,
};

use super::capture::Capture;
use super::driver::Driver;
use super::forge;
use roce_simnet::Regions;

/// How a world is built and driven.
#[derive(Clone, Debug)]
pub(crate) struct WorldConfig {
    pub(crate) link: LinkConfig,
    pub(crate) ipv6: bool,
    /// Of every frame; the lower two bits are the ECN field.
    pub(crate) traffic_class: u8,
    /// Packets per train that an endpoint may emit.
    pub(crate) max_packets: usize,
    /// A train crosses the network as one frame; otherwise as a frame per packet.
    pub(crate) whole_trains: bool,
    /// Packets an endpoint is given before it may answer.
    pub(crate) batch: usize,
    /// Call `handle_timeout` between batches too: a driver takes in so many packets in a round.
    pub(crate) timers_between_batches: bool,
    /// Call `handle_timeout` whenever anything happens, not only when it was asked for.
    pub(crate) eager: bool,
    pub(crate) endpoint: EndpointConfig,
}

impl Default for WorldConfig {
    fn default() -> Self {
        Self {
            link: LinkConfig::default(),
            ipv6: false,
            traffic_class: 0,
            max_packets: 64,
            whole_trains: false,
            batch: usize::MAX,
            timers_between_batches: false,
            eager: false,
            endpoint: EndpointConfig::default(),
        }
    }
}

/// One endpoint with its memory, and what it told its application.
pub(crate) struct Node {
    pub(crate) endpoint: Endpoint<Heard>,
    pub(crate) memory: Regions,
    pub(crate) address: IpAddr,
    /// Completions in the order in which the endpoint gave them.
    pub(crate) completions: Vec<(CqHandle, Completion)>,
    pub(crate) events: Vec<AsyncEvent>,
    /// Every packet this node has sent, if `keep_sent` is on.
    pub(crate) sent: Vec<Sent>,
    pub(crate) keep_sent: bool,
    pub(crate) driver: Driver,
    /// Frames that were written, and that the driver was stopped before it sent.
    unsent: Vec<Vec<u8>>,
    /// Frames that never reached the endpoint: no parse, or a wrong ICRC.
    pub(crate) refused_frames: u64,
    mac: MacAddr,
    host: NodeId,
    identification: u16,
}

/// What an endpoint told its observer of refusals that it sent, and of send windows.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    /// How often something was acknowledged.
    pub(crate) acknowledged: u64,
    pub(crate) refusals: Vec<(Psn, Syndrome)>,
    /// New sizes of send windows, in packets.
    pub(crate) windows: Vec<(Qpn, u32)>,
}

impl Observer for Heard {
    fn nak_sent(&mut self, _at: Instant, _qpn: Qpn, psn: Psn, code: NakCode) {
        self.refusals.push((psn, Syndrome::Nak(code)));
    }

    fn acknowledged(&mut self, _at: Instant, _qpn: Qpn, _up_to: Psn) {
        self.acknowledged += 1;
    }

    fn window_resized(&mut self, _at: Instant, qpn: Qpn, packets: u32) {
        self.windows.push((qpn, packets));
    }

    fn rnr_sent(&mut self, _at: Instant, _qpn: Qpn, psn: Psn) {
        self.refusals.push((psn, forge::rnr(1)));
    }
}

/// The transmit queue that all packets of a node leave through.
pub(crate) const QUEUE: TransmitQueue = TransmitQueue(0);

/// Leaves packets as they are, and tells their transmit queue.
struct OneQueue;

impl PacketSealer for OneQueue {
    fn begin(&mut self, _: Qpn, _: Qpn, _: PathHandle) {}

    fn seal(&mut self, _: &mut [u8], _: Option<roce_wire::PayloadCrc>) {}

    fn transmit_queue(&self, _: Qpn, _: PathHandle, _: Option<u8>) -> Option<TransmitQueue> {
        Some(QUEUE)
    }
}

/// A packet that left a node.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) at: Instant,
    /// Headers to pad, without ICRC.
    pub(crate) packet: Vec<u8>,
}

impl Sent {
    pub(crate) fn headers(&self) -> Headers {
        super::forge::parse(&self.packet)
    }

    pub(crate) fn opcode(&self) -> KnownOpcode {
        self.headers().bth.opcode
    }
}

/// All nodes, the network between them, and the time.
pub(crate) struct World {
    pub(crate) nodes: Vec<Node>,
    pub(crate) network: Network,
    links: Vec<LinkId>,
    config: WorldConfig,
    capture: Option<Capture>,
    tags: u64,
    scratch: Vec<u8>,
}

/// A whole train in one frame carries its segment length behind its last byte, as a device
/// would carry it beside the frame.
const TRAILER: usize = 2;
/// ECN field of a marked frame.
const CONGESTION_EXPERIENCED: u8 = 3;
/// The longest UDP payload of one frame, over either IP version.
const MAX_TRAIN: usize = 65_535 - 40 - 8;
/// Steps without which no test needs to do: beyond them it hangs.
const MAX_STEPS: usize = 2_000_000;

impl World {
    /// Nodes on one switch; two nodes share one direct link, and a single node is linked to
    /// itself.
    pub(crate) fn new(nodes: usize, config: WorldConfig) -> Self {
        let mut network = Network::new();
        let hosts: Vec<_> = (0..nodes).map(|_| network.add_host()).collect();
        let mac = |i: usize| MacAddr([2, 0, 0, 0, 0, i as u8 + 1]);
        let mut links = vec![];
        match hosts[..] {
            [alone] => links = vec![network.connect(alone, alone, config.link)],
            [a, b] => links = vec![network.connect(a, b, config.link); 2],
            _ => {
                let switch = network.add_switch();
                for (i, host) in hosts.iter().enumerate() {
                    let link = network.connect(switch, *host, config.link);
                    network.set_route(switch, mac(i).0, link);
                    links.push(link);
                }
            }
        }
        let node = |(i, host)| Node {
            endpoint: Endpoint::with_observer(config.endpoint.clone(), Heard::default()),
            memory: Regions::default(),
            address: address(i, config.ipv6),
            completions: vec![],
            events: vec![],
            sent: vec![],
            keep_sent: false,
            driver: Driver::default(),
            unsent: vec![],
            refused_frames: 0,
            mac: mac(i),
            host,
            identification: 0xfff0, // so that it wraps early
        };
        let nodes: Vec<_> = hosts.into_iter().enumerate().map(node).collect();
        let capture = Capture::from_environment(nodes.len());
        Self { nodes, network, links, config, capture, tags: 0, scratch: vec![0; 64 + MAX_TRAIN] }
    }

    /// Two nodes and a link.
    pub(crate) fn pair() -> Self {
        Self::new(2, WorldConfig::default())
    }

    /// A number that was not given before.
    pub(crate) fn new_tag(&mut self) -> u64 {
        self.tags += 1;
        self.tags
    }

    /// What hits the frames that `node` sends from now on.
    pub(crate) fn set_impairment(&mut self, node: usize, misfortune: Impairment) {
        self.network.set_impairment(self.links[node], self.nodes[node].host, misfortune);
    }

    pub(crate) fn now(&self) -> Instant {
        self.network.now()
    }

    /// The path by which `node` reaches `peer`.
    pub(crate) fn path_to(peer: usize) -> PathHandle {
        PathHandle(peer as u64)
    }

    /// Calls a method of one endpoint, then takes what it has to say.
    pub(crate) fn with<T>(&mut self, node: usize, call: impl FnOnce(&mut Node, Instant) -> T) -> T {
        let now = self.now();
        let result = call(&mut self.nodes[node], now);
        self.drain(node);
        result
    }

    /// Gives `node` a frame outside any link, as if it had just come in, then takes its answers.
    pub(crate) fn inject(&mut self, node: usize, frame: &[u8]) {
        self.deliver(node, frame);
        self.drain(node);
    }

    /// Jumps to the next thing that happens anywhere; false when nothing ever will.
    pub(crate) fn step(&mut self) -> bool {
        let Some(next) = self.next_event() else { return false };
        self.advance_to(next);
        true
    }

    /// Jumps to the next thing that happens anywhere before `end`, or to `end`.
    pub(crate) fn run_until_next(&mut self, end: Instant) {
        match self.next_event() {
            Some(next) if next <= end => self.advance_to(next),
            _ => self.network.advance_to(end),
        }
    }

    /// When something happens next.
    fn next_event(&self) -> Option<Instant> {
        let now = self.now();
        let wake_ups = self.nodes.iter().filter_map(|node| node.driver.wakes_at(now, node));

        wake_ups.chain(self.network.next_event()).min()
    }

    /// Steps until `done`; fails when it is not in time, or when nothing more happens.
    #[track_caller]
    pub(crate) fn run_until(&mut self, done: impl Fn(&Self) -> bool) {
        for _ in 0..MAX_STEPS {
            if done(self) {
                return;
            }
            assert!(self.step(), "nothing more will happen\n{}", self.report());
        }
        panic!("still not done after {MAX_STEPS} steps\n{}", self.report());
    }

    /// Steps until nothing more will happen by itself.
    #[track_caller]
    pub(crate) fn settle(&mut self) {
        for _ in 0..MAX_STEPS {
            if !self.step() {
                return;
            }
        }
        panic!("no rest after {MAX_STEPS} steps\n{}", self.report());
    }

    /// Lets `span` pass.
    pub(crate) fn run_for(&mut self, span: Duration) {
        let end = self.network.now() + span;
        for _ in 0..MAX_STEPS {
            match self.next_event() {
                Some(next) if next <= end => self.advance_to(next),
                _ => return self.network.advance_to(end),
            }
        }
        panic!("more than {MAX_STEPS} steps in {span:?}\n{}", self.report());
    }

    /// Fails if any node wrote outside its regions.
    pub(crate) fn assert_guards_untouched(&self) {
        self.nodes.iter().for_each(|node| node.memory.assert_guards_untouched());
    }

    /// Outer headers of a frame from `from` to `to`, as that node itself would write them.
    pub(crate) fn outer(&self, from: usize, to: usize) -> OuterHeaders {
        let (from, to) = (&self.nodes[from], &self.nodes[to]);
        let mut outer = OuterHeaders::new(from.address, to.address);
        outer.source_mac = from.mac;
        outer.destination_mac = to.mac;
        outer.traffic_class = self.config.traffic_class;
        outer
    }

    /// Seals one packet (headers to pad) into a frame.
    pub(crate) fn frame(&self, from: usize, to: usize, packet: &[u8]) -> Vec<u8> {
        self.frame_of(&self.outer(from, to), packet)
    }

    /// The same with these outer headers.
    fn frame_of(&self, outer: &OuterHeaders, packet: &[u8]) -> Vec<u8> {
        let mut frame = seal_one(outer, 1, packet);
        if self.config.whole_trains {
            frame.extend([0; TRAILER]);
        }
        frame
    }

    /// The counter of this name at `node`'s endpoint.
    #[track_caller]
    pub(crate) fn counter(&self, node: usize, name: &str) -> u64 {
        let mut counters = self.nodes[node].endpoint.counters().iter();
        counters.find(|(other, _)| *other == name).unwrap_or_else(|| panic!("no counter {name}")).1
    }

    /// Seals `packet` as `from` would and gives it to `to` at once, past the network.
    pub(crate) fn forge(&mut self, from: usize, to: usize, packet: &[u8]) {
        let frame = self.frame(from, to, packet);
        self.inject(to, &frame);
    }

    /// The same to another address than the node's.
    pub(crate) fn forge_to(&mut self, from: usize, to: usize, address: IpAddr, packet: &[u8]) {
        let outer = OuterHeaders { destination: address, ..self.outer(from, to) };
        let frame = self.frame_of(&outer, packet);
        self.inject(to, &frame);
    }

    /// The same with several packets before any answer.
    pub(crate) fn forge_batch(&mut self, from: usize, to: usize, packets: &[Vec<u8>]) {
        for packet in packets {
            let frame = self.frame(from, to, packet);
            self.deliver(to, &frame);
        }
        self.drain(to);
    }

    /// Seals `packet` as a switch leaves it that marks it, and gives it to `to` at once.
    pub(crate) fn forge_marked(&mut self, from: usize, to: usize, packet: &[u8]) {
        let mut outer = self.outer(from, to);
        outer.traffic_class |= CONGESTION_EXPERIENCED;
        let frame = self.frame_of(&outer, packet);
        self.inject(to, &frame);
    }

    /// Everything that one wants to see when a test fails.
    pub(crate) fn report(&self) -> String {
        use std::fmt::Write;
        let mut text = format!("at {:?}, {:?}", self.now(), self.network.stats());
        for (i, node) in self.nodes.iter().enumerate() {
            let counters: Vec<_> =
                node.endpoint.counters().iter().filter(|(_, count)| *count > 0).collect();
            let _ = write!(
                text,
                "\nnode {i}: {} completions, events {:?}, refused frames {}, wakes {:?}\n  {:?}",
                node.completions.len(),
                node.events,
                node.refused_frames,
                node.endpoint.poll_timeout(),
                counters,
            );
        }
        text
    }

    fn advance_to(&mut self, time: Instant) {
        self.network.advance_to(time);
        let now = self.now();
        for i in 0..self.nodes.len() {
            if !self.nodes[i].driver.runs(now) {
                continue;
            }
            for frame in std::mem::take(&mut self.nodes[i].unsent) {
                self.network.send(self.nodes[i].host, frame);
            }
            let mut in_batch = 0;
            while let Some(arrival) = self.network.receive(self.nodes[i].host) {
                self.deliver(i, &arrival.bytes);
                in_batch += 1;
                if in_batch >= self.config.batch {
                    let due = self.nodes[i].endpoint.poll_timeout().is_some_and(|at| at <= now);
                    if due && self.config.timers_between_batches {
                        self.nodes[i].endpoint.handle_timeout(now);
                    }
                    self.drain(i);
                    in_batch = 0;
                }
            }
            let due = self.nodes[i].endpoint.poll_timeout().is_some_and(|at| at <= now);
            if due || self.config.eager {
                self.nodes[i].endpoint.handle_timeout(now);
            }
            self.drain(i);
        }
    }

    /// A frame comes in: parse, walk its packets, hand the sound ones over.
    fn deliver(&mut self, i: usize, bytes: &[u8]) {
        let now = self.now();
        let node = &mut self.nodes[i];
        let (bytes, segment_len) = if self.config.whole_trains {
            let Some((frame, trailer)) = bytes.split_last_chunk::<TRAILER>() else { return };
            (frame, Some(usize::from(u16::from_be_bytes(*trailer))).filter(|len| *len > 0))
        } else {
            (bytes, None)
        };
        if let Some(capture) = &mut self.capture {
            match segment_len {
                Some(len) => capture.record_train(i, now.as_nanos(), bytes, len),
                None => capture.record(i, now.as_nanos(), bytes),
            }
        }
        let Ok(frame) = Frame::parse(bytes) else {
            node.refused_frames += 1;
            return;
        };
        for packet in frame.packets(segment_len) {
            match packet.ok().and_then(|packet| packet.verify_icrc().ok()) {
                Some(packet) if packet.destination().is_multicast() => {
                    node.endpoint.handle_group_packet(now, &packet, &mut node.memory);
                }
                Some(packet) => node.endpoint.handle_packet(now, &packet, &mut node.memory),
                None => node.refused_frames += 1,
            }
        }
    }

    /// Takes everything an endpoint has to say, in the order its documentation asks for.
    fn drain(&mut self, i: usize) {
        let now = self.now();
        let mut trains = 0;
        let holds_acks = self.nodes[i].driver.holds_acks_until > now;
        self.nodes[i].endpoint.delay_acks(holds_acks);
        let node = &mut self.nodes[i];
        if node.driver.suspended_until > now {
            node.endpoint.suspend_transmit(QUEUE);
        } else if node.driver.suspended_until > Instant::default() {
            node.driver.suspended_until = Instant::default();
            node.endpoint.resume_transmit(QUEUE);
        }
        let takes_one = std::mem::take(&mut self.nodes[i].driver.takes_one);
        while self.nodes[i].driver.takes_frames(now) || (takes_one && trains == 0) {
            let limits = TransmitLimits { max_packets: self.config.max_packets };
            let node = &mut self.nodes[i];
            let room = &mut self.scratch[64..];
            let Node { endpoint, memory, .. } = node;
            let train = endpoint.poll_transmit_sealed(now, memory, limits, room, &mut OneQueue);
            let Some(train) = train else { break };
            trains += 1;
            assert!(trains < 100_000, "an endpoint must come to an end\n{}", self.report());
            assert!(train.packets <= self.config.max_packets && train.packets > 0);
            assert_eq!(train.packets, train.len.div_ceil(train.segment_len));
            if self.nodes[i].driver.has_carrier(now) {
                self.emit(i, train.path.0 as usize, train.segment_len, train.len);
            }
        }
        let node = &mut self.nodes[i];
        while let Some(completion) = node.endpoint.poll_completion() {
            node.completions.push(completion);
        }
        while let Some(event) = node.endpoint.poll_event() {
            node.events.push(event);
        }
    }

    /// A train leaves: outer headers and ICRCs, then the network.
    fn emit(&mut self, from: usize, to: usize, segment_len: usize, len: usize) {
        let nanos = self.network.now().as_nanos();
        let outer = self.outer(from, to);
        let first = self.nodes[from].identification;
        let packets = len.div_ceil(segment_len);
        self.nodes[from].identification = first.wrapping_add(packets as u16);
        let mut frames = vec![];
        if self.config.whole_trains {
            let start = 64 - outer.len();
            let frame = &mut self.scratch[start..64 + len];
            seal(&outer, first, frame, segment_len, UdpChecksum::Zero).expect("a sound train");
            if let Some(capture) = &mut self.capture {
                capture.record_train(from, nanos, frame, segment_len);
            }
            let trailer = if packets > 1 { segment_len as u16 } else { 0 };
            frames.push([&*frame, &trailer.to_be_bytes()].concat());
        } else {
            for (i, segment) in self.scratch[64..64 + len].chunks(segment_len).enumerate() {
                let packet = &segment[..segment.len() - roce_wire::ICRC_LEN];
                let frame = seal_one(&outer, first.wrapping_add(i as u16), packet);
                if let Some(capture) = &mut self.capture {
                    capture.record(from, nanos, &frame);
                }
                frames.push(frame);
            }
        }
        if self.nodes[from].keep_sent {
            let segments = self.scratch[64..64 + len].chunks(segment_len);
            let at = Instant::from_nanos(nanos);
            let packets = segments
                .map(|it| Sent { at, packet: it[..it.len() - roce_wire::ICRC_LEN].to_vec() });
            self.nodes[from].sent.extend(packets);
        }
        let node = &mut self.nodes[from];
        if !node.driver.runs(Instant::from_nanos(nanos)) {
            return node.unsent.extend(frames);
        }
        for frame in frames {
            self.network.send(self.nodes[from].host, frame);
        }
    }
}

/// Seals one packet (headers to pad) into a frame of its own.
pub(crate) fn seal_one(outer: &OuterHeaders, identification: u16, packet: &[u8]) -> Vec<u8> {
    let segment_len = packet.len() + roce_wire::ICRC_LEN;
    let mut frame = vec![0; outer.len() + segment_len];
    frame[outer.len()..][..packet.len()].copy_from_slice(packet);
    seal(outer, identification, &mut frame, segment_len, UdpChecksum::Zero).expect("one packet");
    frame
}

fn address(i: usize, ipv6: bool) -> IpAddr {
    let last = i as u8 + 1;
    if ipv6 {
        IpAddr::V6(Ipv6Addr::new(0xfd00, 9, 0, 0, 0, 0, 0, u16::from(last)))
    } else {
        IpAddr::V4(Ipv4Addr::new(10, 9, 0, last))
    }
}
