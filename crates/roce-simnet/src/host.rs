//! A simulated host: engine, memory and completions.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};

use roce_fabric::{Impairment, Instant};
use roce_transport::{Completion, CqHandle, Endpoint, QpInfo, SrqHandle, SrqInfo};
use roce_wire::{MacAddr, OuterHeaders, Qpn};

use crate::Regions;
use crate::event_recorder::EventRecorder;

/// A simulated host: an engine, its registered memory and its link.
#[derive(Debug)]
pub struct Host {
    /// Name in the lesson.
    pub name: String,
    /// Registered memory.
    pub memory: Regions,
    pub(crate) endpoint: Endpoint<EventRecorder>,
    /// All queue pairs.
    pub(crate) queue_pairs: Vec<Qpn>,
    pub(crate) completions: VecDeque<(CqHandle, Completion)>,
    pub(crate) address: IpAddr,
    pub(crate) mac: MacAddr,
    pub(crate) identification: u16,
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

impl Host {
    pub(crate) fn new(place: usize, name: String, endpoint: Endpoint<EventRecorder>) -> Self {
        let [.., high, low] = (place as u32 + 1).to_be_bytes();
        Self {
            name,
            memory: Regions::default(),
            endpoint,
            queue_pairs: Vec::new(),
            completions: VecDeque::new(),
            address: IpAddr::V4(Ipv4Addr::new(10, 9, high, low)),
            mac: MacAddr([2, 0, 0, 0, high, low]),
            identification: 0,
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

    pub(crate) fn outer_to(&self, peer: &Self) -> OuterHeaders {
        let mut outer = OuterHeaders::new(self.address, peer.address);
        outer.source_mac = self.mac;
        outer.destination_mac = peer.mac;
        outer
    }
}
