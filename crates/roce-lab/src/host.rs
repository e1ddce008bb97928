//! One host of the lab: the engine, its memory, and what it told its application.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};

use roce_simnet::{Impairment, NodeId, Time};
use roce_transport::{Completion, CqHandle, Endpoint};
use roce_wire::{MacAddr, OuterHeaders, Qpn};

use crate::event_recorder::EventRecorder;
use roce_simnet::Regions;

/// One host: a real engine, its registered memory and its place in the network.
#[derive(Debug)]
pub struct Host {
    /// What the lesson calls it.
    pub name: String,
    /// All memory that it has registered.
    pub memory: Regions,
    pub(crate) endpoint: Endpoint<EventRecorder>,
    /// Every queue pair that was made on it.
    pub(crate) queue_pairs: Vec<Qpn>,
    pub(crate) completions: VecDeque<(CqHandle, Completion)>,
    pub(crate) address: IpAddr,
    pub(crate) mac: MacAddr,
    pub(crate) node: NodeId,
    pub(crate) identification: u16,
    /// Until when its link is busy with frames that have been handed to it.
    pub(crate) busy_until: Time,
    /// The engine may have more to send once the link is free.
    pub(crate) may_have_more: bool,
    /// The twin of what the network was told about frames from here.
    pub(crate) fates: Impairment,
}

impl Host {
    pub(crate) fn new(
        place: usize,
        name: String,
        node: NodeId,
        endpoint: Endpoint<EventRecorder>,
    ) -> Self {
        let [.., high, low] = (place as u32 + 1).to_be_bytes();
        Self {
            name,
            memory: Regions::default(),
            endpoint,
            queue_pairs: Vec::new(),
            completions: VecDeque::new(),
            address: IpAddr::V4(Ipv4Addr::new(10, 9, high, low)),
            mac: MacAddr([2, 0, 0, 0, high, low]),
            node,
            identification: 0,
            busy_until: Time::START,
            may_have_more: false,
            fates: Impairment::default(),
        }
    }

    /// Its address.
    pub const fn address(&self) -> IpAddr {
        self.address
    }

    /// How often what happened in its engine.
    pub fn counters(&self) -> &roce_transport::Counters {
        self.endpoint.counters()
    }

    /// Takes the oldest completion of the engine that is not taken yet.
    pub fn poll_completion(&mut self) -> Option<(CqHandle, Completion)> {
        self.completions.pop_front()
    }

    pub(crate) fn outer_to(&self, peer: &Self) -> OuterHeaders {
        let mut outer = OuterHeaders::new(self.address, peer.address);
        outer.source_mac = self.mac;
        outer.destination_mac = peer.mac;
        outer
    }
}
