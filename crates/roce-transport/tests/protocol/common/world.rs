//! The world of the tests: hosts in virtual time, forged frames, captures.

use std::net::IpAddr;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use roce_simnet::EventKind;
use roce_transport::Instant;
use roce_wire::{
    Frame, Headers, ICRC_LEN, KnownOpcode, OuterHeaders, Psn, Syndrome, UdpChecksum, seal,
};

use super::capture::Capture;
use super::forge;

pub(crate) use roce_simnet::WorldConfig;

/// The configuration of most tests: trains of up to 64 packets, which wait in the queues of links, and no
/// timeline.
pub(crate) fn test_config() -> WorldConfig {
    WorldConfig {
        waits_for_link: false,
        wire_overhead: 0,
        train_packets: 64,
        keep_timeline: false,
        ..WorldConfig::default()
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
        forge::parse(&self.packet)
    }

    pub(crate) fn opcode(&self) -> KnownOpcode {
        self.headers().bth.opcode
    }
}

/// All nodes, the network between them, and the time.
pub(crate) struct World {
    simulated: roce_simnet::World,
    tags: u64,
}

impl Deref for World {
    type Target = roce_simnet::World;

    fn deref(&self) -> &Self::Target {
        &self.simulated
    }
}

impl DerefMut for World {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.simulated
    }
}

/// ECN field of a marked frame.
const CONGESTION_EXPERIENCED: u8 = 3;
/// Steps without which no test needs to do: beyond them it hangs.
const MAX_STEPS: usize = 2_000_000;

impl World {
    /// Nodes on one switch; two nodes share one direct link, and a single node is linked to
    /// itself.
    pub(crate) fn new(nodes: usize, config: WorldConfig) -> Self {
        let names: Vec<_> = (0..nodes).map(|node| format!("node{node}")).collect();
        let mut simulated = roce_simnet::World::new(&names, config);
        // So that it wraps early.
        simulated.hosts.iter_mut().for_each(|host| host.identification = 0xfff0);
        if let Some(mut capture) = Capture::from_environment(nodes) {
            simulated.set_tap(move |frame| capture.record_tapped(frame));
        }
        Self { simulated, tags: 0 }
    }

    /// Two nodes and a link.
    pub(crate) fn pair() -> Self {
        Self::new(2, test_config())
    }

    /// A number that was not given before.
    pub(crate) fn new_tag(&mut self) -> u64 {
        self.tags += 1;
        self.tags
    }

    /// Every packet that `node` has sent while a timeline was kept.
    pub(crate) fn sent(&self, node: usize) -> Vec<Sent> {
        assert!(self.config().keep_timeline, "no packets are kept");
        let mut sent = vec![];
        for record in self.timeline().packets.iter().filter(|it| it.from == node) {
            let frame = Frame::parse(&record.frame).expect("a sound frame");
            let segments = frame.payload().chunks(record.segment_len.unwrap_or(usize::MAX));
            sent.extend(
                segments
                    .map(|it| Sent { at: record.sent, packet: it[..it.len() - ICRC_LEN].to_vec() }),
            );
        }
        sent
    }

    /// What the endpoint of `node` told its observer while a timeline was kept.
    fn told(&self, node: usize) -> impl Iterator<Item = &EventKind> {
        assert!(self.config().keep_timeline, "no events are kept");
        let events = self.timeline().events.iter();
        events.filter(move |it| it.host == node).map(|it| &it.kind)
    }

    /// The refusals that `node` has sent, if a timeline was kept.
    pub(crate) fn refusals(&self, node: usize) -> Vec<(Psn, Syndrome)> {
        let refusal = |kind: &EventKind| match *kind {
            EventKind::NakSent { psn, code } => Some((psn, Syndrome::Nak(code))),
            EventKind::RnrSent { psn } => Some((psn, forge::rnr(1))),
            _ => None,
        };
        self.told(node).filter_map(refusal).collect()
    }

    /// New sizes of send windows of `node` in packets, if a timeline was kept.
    pub(crate) fn windows(&self, node: usize) -> Vec<u32> {
        let window = |kind: &EventKind| match *kind {
            EventKind::WindowResized { packets } => Some(packets),
            _ => None,
        };
        self.told(node).filter_map(window).collect()
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
        let end = self.now() + span;
        for _ in 0..MAX_STEPS {
            if self.next_event().is_none_or(|next| next > end) {
                return self.simulated.run_until(end);
            }
            self.step();
        }
        panic!("more than {MAX_STEPS} steps in {span:?}\n{}", self.report());
    }

    /// Fails if any node wrote outside its regions.
    pub(crate) fn assert_guards_untouched(&self) {
        self.hosts.iter().for_each(|node| node.memory.assert_guards_untouched());
    }

    /// Outer headers of a frame from `from` to `to`, as that node itself would write them.
    pub(crate) fn outer(&self, from: usize, to: usize) -> OuterHeaders {
        let outer = self.hosts[from].outer_to(&self.hosts[to]);
        OuterHeaders { traffic_class: self.config().traffic_class, ..outer }
    }

    /// Seals one packet (headers to pad) into a frame.
    pub(crate) fn frame(&self, from: usize, to: usize, packet: &[u8]) -> Vec<u8> {
        seal_one(&self.outer(from, to), 1, packet)
    }

    /// The counter of this name at `node`'s endpoint.
    #[track_caller]
    pub(crate) fn counter(&self, node: usize, name: &str) -> u64 {
        let mut counters = self.hosts[node].endpoint.counters().iter();
        counters.find(|(other, _)| *other == name).unwrap_or_else(|| panic!("no counter {name}")).1
    }

    /// Seals `packet` as `from` would and gives it to `to` at once, past the network.
    pub(crate) fn forge(&mut self, from: usize, to: usize, packet: &[u8]) {
        let frame = self.frame(from, to, packet);
        self.inject(to, [frame]);
    }

    /// The same to another address than the node's.
    pub(crate) fn forge_to(&mut self, from: usize, to: usize, address: IpAddr, packet: &[u8]) {
        let outer = OuterHeaders { destination: address, ..self.outer(from, to) };
        self.inject(to, [seal_one(&outer, 1, packet)]);
    }

    /// The same with several packets before any answer.
    pub(crate) fn forge_batch(&mut self, from: usize, to: usize, packets: &[Vec<u8>]) {
        let frames: Vec<_> = packets.iter().map(|packet| self.frame(from, to, packet)).collect();
        self.inject(to, frames);
    }

    /// Seals `packet` as a switch leaves it that marks it, and gives it to `to` at once.
    pub(crate) fn forge_marked(&mut self, from: usize, to: usize, packet: &[u8]) {
        let mut outer = self.outer(from, to);
        outer.traffic_class |= CONGESTION_EXPERIENCED;
        self.inject(to, [seal_one(&outer, 1, packet)]);
    }

    /// Everything that one wants to see when a test fails.
    pub(crate) fn report(&self) -> String {
        use std::fmt::Write;
        let mut text = format!("at {:?}, {:?}", self.now(), self.link_stats());
        for (i, node) in self.hosts.iter().enumerate() {
            let counters: Vec<_> =
                node.endpoint.counters().iter().filter(|(_, count)| *count > 0).collect();
            let _ = write!(
                text,
                "\nnode {i}: {} completions, events {:?}, refused packets {}, wakes {:?}\n  {:?}",
                node.completions.len(),
                node.events,
                node.refused_packets,
                node.endpoint.poll_timeout(),
                counters,
            );
        }
        text
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
