//! A connection as the capture shows it: for a table, and for programs.

use std::net::IpAddr;
use std::time::Duration;

use roce_wire::{Qpn, Service};

use super::Flows;
use super::direction::{Direction, DirectionCounts};
use super::histogram::Histogram;
use crate::{Finding, Timestamp};

/// Two queue pairs that talk, or one that is talked to while its peer's answers are not in the
/// capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Its number, the one in [`FlowContext::connection`](crate::FlowContext::connection).
    pub number: u32,
    /// What kind of connection; `None` where nothing but congestion notifications was seen.
    pub service: Option<Service>,
    /// Who sent the first packet.
    pub a: FlowEnd,
    /// Whom it was sent to.
    pub b: FlowEnd,
    /// From `a` to `b`.
    pub forward: DirectionCounts,
    /// From `b` to `a`.
    pub backward: DirectionCounts,
    /// The path MTU, once a packet or connection management told it.
    pub mtu: Option<u16>,
    /// From requests to their answers, both ways; `None` where none was measured.
    pub round_trips: Option<RoundTrips>,
    /// The longest silence while an answer was outstanding.
    pub longest_stall: Duration,
}

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowEnd {
    /// Its address; for RoCEv1 its GID as an address.
    pub address: IpAddr,
    /// Its queue pair, once it was learnt.
    pub qp: Option<Qpn>,
}

/// Times from a request to its answer, as the capture saw both. Median and 99 % are right to
/// within three per cent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundTrips {
    /// How many were measured.
    pub count: u64,
    /// The shortest.
    pub min: Duration,
    /// Half were not longer.
    pub median: Duration,
    /// 99 of 100 were not longer.
    pub p99: Duration,
}

/// The connections seen so far, in the order of their first packets.
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

/// A connection's own state; what belongs to a direction is with that.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slot {
    /// The direction of its first packet; `None` once it turned out to be a part of another.
    pub(super) forward: Option<u32>,
    pub(super) last_packet: Option<Timestamp>,
    pub(super) longest_stall: Duration,
}

impl Flows {
    fn connection(&self, number: u32, forward: &Direction, longest_stall: Duration) -> Connection {
        let backward = forward.partner.map(|partner| &self.directions[partner as usize]);
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
            forward: forward.counts,
            backward: backward.map(|backward| backward.counts).unwrap_or_default(),
            mtu: directions().find_map(|direction| direction.requests.mtu),
            round_trips: all.map(|histogram| RoundTrips {
                count: histogram.total(),
                min: histogram.min(),
                median: histogram.quantile(500),
                p99: histogram.quantile(990),
            }),
            longest_stall,
        }
    }

    /// A packet of this connection: was there a silence before it that somebody waited through?
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
