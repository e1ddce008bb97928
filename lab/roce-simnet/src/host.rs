//! A simulated host: engine, memory and completions.

use std::collections::{HashMap, VecDeque};
use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bytes::Bytes;
use roce_fabric::{Impairment, Instant};
use roce_transport::{
    AsyncEvent, Completion, CqHandle, Endpoint, Memory, QpInfo, SrqHandle, SrqInfo, Transmit,
    TransmitLimits,
};
use roce_wire::{Frame, MacAddr, OuterHeaders, Qpn};

use crate::carrier::Outgoing;
use crate::driver::OneQueue;
use crate::event_recorder::EventRecorder;
use crate::{Driver, Regions};

/// A simulated host: an engine, its registered memory and its link.
#[derive(Debug)]
pub struct Host<M = Regions> {
    /// Name in the lesson.
    pub name: String,
    /// Registered memory.
    pub memory: M,
    /// The engine. What it has to send or to tell after a call, [`World::with`](crate::World::with) takes.
    pub endpoint: Endpoint<EventRecorder>,
    /// When the host runs, and what its interface does.
    pub driver: Driver,
    /// Completions that were not taken, in the order in which the engine gave them.
    pub completions: VecDeque<(CqHandle, Completion)>,
    /// Asynchronous events of the engine.
    pub events: Vec<AsyncEvent>,
    /// Number of packets that never reached the engine: they cannot be parsed, or have a wrong ICRC.
    pub refused_packets: u64,
    /// IP identification of the next packet.
    pub identification: u16,
    /// All queue pairs of connections.
    pub(crate) queue_pairs: Vec<Qpn>,
    pub(crate) address: IpAddr,
    pub(crate) mac: MacAddr,
    /// Frames that arrived while the driver did not run.
    pub(crate) inbox: VecDeque<Bytes>,
    /// Frames that were written while the driver did not run.
    pub(crate) unsent: Vec<Outgoing>,
    /// Time until which the link is busy.
    pub(crate) busy_until: Instant,
    /// Bytes of payload that arrived for each queue pair, those sent again included.
    pub(crate) arrived_bytes: HashMap<Qpn, u64>,
    /// Frames of this host that a fabric has lost by the script.
    pub(crate) lost_frames: u64,
    /// The engine may have more to send once the link is free.
    pub(crate) may_have_more: bool,
    /// The faults of this host's frames, as set in the network.
    pub(crate) fates: Impairment,
}

impl<M: Memory> Host<M> {
    pub(crate) fn new(
        place: usize,
        name: String,
        ipv6: bool,
        endpoint: Endpoint<EventRecorder>,
        memory: M,
    ) -> Self {
        let [.., high, low] = (place as u32 + 1).to_be_bytes();
        let number = u16::from_be_bytes([high, low]);
        Self {
            name,
            memory,
            endpoint,
            driver: Driver::default(),
            completions: VecDeque::new(),
            events: Vec::new(),
            refused_packets: 0,
            identification: 0,
            queue_pairs: Vec::new(),
            address: match ipv6 {
                false => Ipv4Addr::new(10, 9, high, low).into(),
                true => Ipv6Addr::new(0xfd00, 9, 0, 0, 0, 0, 0, number).into(),
            },
            mac: MacAddr([2, 0, 0, 0, high, low]),
            inbox: VecDeque::new(),
            unsent: Vec::new(),
            busy_until: Instant::START,
            arrived_bytes: HashMap::new(),
            lost_frames: 0,
            may_have_more: false,
            fates: Impairment::default(),
        }
    }

    /// Returns the address.
    pub const fn address(&self) -> IpAddr {
        self.address
    }

    /// Returns the counters of the engine.
    pub fn counters(&self) -> &roce_transport::Counters {
        self.endpoint.counters()
    }

    /// Takes the oldest completion.
    pub fn poll_completion(&mut self) -> Option<(CqHandle, Completion)> {
        self.completions.pop_front()
    }

    /// Returns the bytes of payload that arrived for a queue pair, those sent again included.
    pub fn arrived_bytes(&self, qpn: Qpn) -> u64 {
        self.arrived_bytes.get(&qpn).copied().unwrap_or(0)
    }

    /// Returns the number of frames of this host that a fabric has lost by the script.
    pub const fn lost_frames(&self) -> u64 {
        self.lost_frames
    }

    /// Returns the state of a queue pair.
    pub fn query_qp(&self, qpn: Qpn) -> Option<QpInfo> {
        self.endpoint.query_qp(qpn)
    }

    /// Returns the state of a shared receive queue.
    pub fn query_srq(&self, srq: SrqHandle) -> Option<SrqInfo> {
        self.endpoint.query_srq(srq)
    }

    /// Returns the rate in bits per second that congestion control allows a queue pair; `None` if it
    /// does not limit it.
    pub fn rate_limit(&self, qpn: Qpn) -> Option<u64> {
        self.endpoint.rate_limit(qpn)
    }

    /// Returns the outer headers of a frame to `peer`, Not-ECT.
    pub fn outer_to(&self, peer: &Self) -> OuterHeaders {
        let mut outer = OuterHeaders::new(self.address, peer.address);
        outer.source_mac = self.mac;
        outer.destination_mac = peer.mac;
        outer
    }

    /// Parses a frame, checks the ICRCs of its packets and passes these to the engine. Calls `refused`
    /// with the reason for each that it does not take.
    pub(crate) fn handle_frame(
        &mut self,
        now: Instant,
        bytes: &[u8],
        segment_len: Option<usize>,
        mut refused: impl FnMut(&dyn Display),
    ) {
        let Self { endpoint, memory, arrived_bytes, refused_packets, .. } = self;
        let mut refuse = |why: &dyn Display| {
            *refused_packets += 1;
            refused(why);
        };
        let frame = match Frame::parse(bytes) {
            Ok(frame) => frame,
            Err(why) => return refuse(&why),
        };
        for packet in frame.packets(segment_len) {
            match packet.map(|packet| packet.verify_icrc()) {
                Ok(Ok(packet)) => {
                    let len = packet.payload().len() as u64;
                    *arrived_bytes.entry(packet.headers().bth.dest_qp).or_default() += len;
                    match packet.destination().is_multicast() {
                        true => endpoint.handle_group_packet(now, &packet, memory),
                        false => endpoint.handle_packet(now, &packet, memory),
                    }
                }
                Ok(Err(why)) => refuse(&why),
                Err(why) => refuse(&why),
            }
        }
    }

    /// Handles timers that are due, or all that there are; returns true if there were any.
    pub(crate) fn handle_timers(&mut self, now: Instant, all: bool) -> bool {
        let is_due = all || self.endpoint.poll_timeout().is_some_and(|at| at <= now);
        if is_due {
            self.endpoint.handle_timeout(now);
        }
        is_due
    }

    /// Tells the engine what its driver delays and suspends.
    pub(crate) fn begin_transmit(&mut self, now: Instant) {
        let Self { endpoint, driver, .. } = self;
        endpoint.delay_acks(driver.holds_acks_until > now);
        if driver.suspended_until > now {
            endpoint.suspend_transmit(Driver::QUEUE);
        } else if driver.suspended_until > Instant::START {
            driver.suspended_until = Instant::START;
            endpoint.resume_transmit(Driver::QUEUE);
        }
    }

    /// Writes the next train of at most `max_packets` packets to `room`.
    pub(crate) fn poll_train(
        &mut self,
        now: Instant,
        max_packets: usize,
        room: &mut [u8],
    ) -> Option<Transmit> {
        let (limits, memory) = (TransmitLimits { max_packets }, &mut self.memory);
        let train = self.endpoint.poll_transmit_sealed(now, memory, limits, room, &mut OneQueue)?;
        assert!((1..=max_packets).contains(&train.packets), "{train:?}");
        assert_eq!(train.packets, train.len.div_ceil(train.segment_len), "{train:?}");
        Some(train)
    }
}
