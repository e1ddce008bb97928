//! Connections as the dissector reports them.

use std::net::IpAddr;
use std::time::Duration;

use roce_wire::{Qpn, Service};

use super::Flows;
use super::direction::{Direction, DirectionCounts};
use super::histogram::Histogram;
use super::reaction::Reaction;
use crate::{Finding, Timestamp};

/// A connection of two queue pairs. The capture may have one direction only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Number, as in [`FlowContext::connection`](crate::FlowContext::connection).
    pub number: u32,
    /// Transport service; `None` if only congestion notifications were captured.
    pub service: Option<Service>,
    /// Sender of the first packet.
    pub a: FlowEnd,
    /// Receiver of the first packet.
    pub b: FlowEnd,
    /// Counts from `a` to `b`.
    pub forward: DirectionCounts,
    /// Counts from `b` to `a`.
    pub backward: DirectionCounts,
    /// Path MTU in bytes, once known from a packet or connection management.
    pub mtu: Option<u16>,
    /// Round-trip times of both directions; `None` if none was measured.
    pub round_trips: Option<RoundTrips>,
    /// Longest time without packets while a response was outstanding.
    pub longest_stall: Duration,
    /// What CNPs made of the sender `a`; `None` without CNPs for it.
    pub forward_reaction: Option<Reaction>,
    /// What CNPs made of the sender `b`.
    pub backward_reaction: Option<Reaction>,
}

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowEnd {
    /// Address; for RoCEv1 the GID as an address.
    pub address: IpAddr,
    /// Queue pair, once known.
    pub qp: Option<Qpn>,
}

/// Times from request to response as captured. Median and 99th percentile are accurate to three
/// per cent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundTrips {
    /// Number of measurements.
    pub count: u64,
    /// Minimum.
    pub min: Duration,
    /// Median.
    pub median: Duration,
    /// 99th percentile.
    pub p99: Duration,
}

/// Iterator over the connections, in the order of their first packets.
#[derive(Clone, Debug)]
pub struct Connections<'a> {
    flows: Option<&'a Flows>,
    next: usize,
}

impl<'a> Connections<'a> {
    pub(crate) const fn new(flows: Option<&'a Flows>) -> Self {
        Self { flows, next: 0 }
    }
}

impl Iterator for Connections<'_> {
    type Item = Connection;

    fn next(&mut self) -> Option<Connection> {
        let flows = self.flows?;
        loop {
            let number = self.next;
            let slot = flows.connections.get(number)?;
            self.next += 1;
            if let Some(forward) = slot.forward {
                let direction = &flows.directions[forward as usize];
                return Some(flows.connection(number as u32, direction, slot.longest_stall));
            }
        }
    }
}

/// State of a connection that belongs to neither direction.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slot {
    /// Direction of the first packet; `None` after the slot was merged into another.
    pub(super) forward: Option<u32>,
    pub(super) last_packet: Option<Timestamp>,
    pub(super) longest_stall: Duration,
}

impl Flows {
    fn connection(&self, number: u32, forward: &Direction, longest_stall: Duration) -> Connection {
        let backward = forward.partner.map(|partner| &self.directions[partner as usize]);
        let reaction = |it: Option<&Direction>| it?.sender.as_ref()?.reaction();
        let directions = || [Some(forward), backward].into_iter().flatten();
        let mut all: Option<Histogram> = None;
        for histogram in directions().filter_map(|d| d.requests.round_trips.as_ref()) {
            match &mut all {
                Some(all) => all.merge(histogram),
                None => all = Some(histogram.clone()),
            }
        }
        Connection {
            number,
            service: directions().find_map(|direction| direction.service),
            a: FlowEnd {
                address: forward.key.source,
                qp: backward.map(|backward| backward.key.qp).or(forward.source_qp),
            },
            b: FlowEnd { address: forward.key.destination, qp: Some(forward.key.qp) },
            forward: forward.totals(),
            backward: backward.map(Direction::totals).unwrap_or_default(),
            mtu: directions().find_map(|direction| direction.requests.mtu),
            round_trips: all.map(|histogram| RoundTrips {
                count: histogram.total(),
                min: histogram.min(),
                median: histogram.quantile(500),
                p99: histogram.quantile(990),
            }),
            longest_stall,
            forward_reaction: reaction(Some(forward)),
            backward_reaction: reaction(backward),
        }
    }

    /// Records the time of a packet and reports a stall before it.
    pub(super) fn note_time(&mut self, index: u32, time: Timestamp, findings: &mut Vec<Finding>) {
        let direction = &self.directions[index as usize];
        let partner = direction.partner.map(|partner| &self.directions[partner as usize]);
        let waiting = direction.is_waiting() || partner.is_some_and(Direction::is_waiting);
        let slot = &mut self.connections[direction.connection as usize];
        if let Some(last) = slot.last_packet.replace(time).filter(|_| waiting) {
            let silence = time.since(last);
            slot.longest_stall = slot.longest_stall.max(silence);
            if silence >= self.options.stall {
                findings.push(Finding::Stall(silence));
            }
        }
    }
}
