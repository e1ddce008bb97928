//! Pairs the two directions of a connection. A packet carries the destination queue pair, not the
//! source queue pair.
//!
//! Connection management carries both. Without it a response identifies the connection, because
//! it carries the PSN of an outstanding request and PSNs begin at random. If two requesters on
//! the same host have that PSN outstanding, the UDP source port decides: most implementations
//! choose the same one at both ends. If that is ambiguous too, the next response tries again.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use roce_wire::management::CommunicationId;
use roce_wire::{PathMtu, Psn, Qpn};

use super::Flows;
use super::direction::Key;
use crate::Roce;
use crate::tree::CmMessage;

/// Candidates for pairing.
#[derive(Debug, Default)]
pub(super) struct Pairing {
    /// Directions with requests and without a partner, by source and destination.
    listed: HashMap<(IpAddr, IpAddr), Vec<u32>>,
    /// Connection requests without a reply.
    cm_requests: VecDeque<CmRequest>,
}

/// A connection request (CM REQ).
#[derive(Clone, Copy, Debug)]
struct CmRequest {
    source: IpAddr,
    destination: IpAddr,
    id: CommunicationId,
    qpn: Qpn,
    starting_psn: Psn,
    mtu: Option<PathMtu>,
}

impl Flows {
    /// Lists a direction with requests as a candidate for pairing.
    pub(super) fn list(&mut self, index: u32) {
        let direction = &mut self.directions[index as usize];
        if direction.is_listed || direction.partner.is_some() {
            return;
        }
        direction.is_listed = true;
        let hosts = (direction.key.source, direction.key.destination);
        self.pairing.listed.entry(hosts).or_default().push(index);
    }

    /// Pairs direction `index` with the direction of the requests that a response with this PSN
    /// belongs to.
    pub(super) fn find_partner(&mut self, index: u32, psn: Psn, port: u16) {
        let key = self.directions[index as usize].key;
        let Some(listed) = self.pairing.listed.get(&(key.destination, key.source)) else { return };
        let mut found = None;
        let mut is_unique = true;
        for &candidate in listed.iter().rev().take(MAX_CANDIDATES) {
            let direction = &self.directions[candidate as usize];
            if candidate == index || !direction.requests.may_match_response(psn) {
                continue;
            }
            let same_port = direction.source_port == port;
            match found {
                None => found = Some((candidate, same_port)),
                Some((_, true)) if !same_port => {}
                Some((_, false)) if same_port => {
                    found = Some((candidate, true));
                    is_unique = true;
                }
                Some(_) => is_unique = false,
            }
        }
        if let Some((partner, _)) = found.filter(|_| is_unique) {
            self.pair(index, partner);
        }
    }

    /// Merges two directions into one connection, which keeps the lower number.
    pub(super) fn pair(&mut self, one: u32, other: u32) {
        let is_free = |flows: &Self, index: u32| flows.directions[index as usize].partner.is_none();
        if one == other || !is_free(self, one) || !is_free(self, other) {
            return;
        }
        for index in [one, other] {
            let direction = &mut self.directions[index as usize];
            let hosts = (direction.key.source, direction.key.destination);
            if std::mem::take(&mut direction.is_listed)
                && let Some(listed) = self.pairing.listed.get_mut(&hosts)
            {
                listed.retain(|listed| *listed != index);
                if listed.is_empty() {
                    self.pairing.listed.remove(&hosts);
                }
            }
        }
        let connection = |index: u32| self.directions[index as usize].connection;
        let (first, second) = match connection(one) <= connection(other) {
            true => (one, other),
            false => (other, one),
        };
        let (kept, given_up) = (connection(first), connection(second));
        let before = std::mem::take(&mut self.connections[given_up as usize]);
        let slot = &mut self.connections[kept as usize];
        slot.longest_stall = slot.longest_stall.max(before.longest_stall);
        slot.last_packet = slot.last_packet.max(before.last_packet);
        self.directions[first as usize].partner = Some(second);
        let second = &mut self.directions[second as usize];
        second.partner = Some(first);
        second.connection = kept;
        second.forward = false;
    }

    /// Reads connection management: a request and its reply carry both queue pairs.
    pub(super) fn learn(&mut self, roce: &Roce<'_>) {
        let Some(message) = CmMessage::parse(roce.payload) else { return };
        let (Some(qpn), Some(starting_psn)) = (message.qpn, message.starting_psn) else { return };
        if message.is_request() {
            if self.pairing.cm_requests.len() == MAX_CM_REQUESTS {
                self.pairing.cm_requests.pop_front();
            }
            self.pairing.cm_requests.push_back(CmRequest {
                source: roce.source,
                destination: roce.destination,
                id: message.local_id,
                qpn,
                starting_psn,
                mtu: message.mtu,
            });
        } else if message.is_reply() {
            let is_it = |request: &CmRequest| {
                Some(request.id) == message.remote_id
                    && (request.source, request.destination) == (roce.destination, roce.source)
            };
            let Some(at) = self.pairing.cm_requests.iter().rposition(is_it) else { return };
            let Some(request) = self.pairing.cm_requests.remove(at) else { return };
            let there = Key { source: request.source, destination: request.destination, qp: qpn };
            let back =
                Key { source: request.destination, destination: request.source, qp: request.qpn };
            let (Some(there), Some(back)) = (self.direction(there), self.direction(back)) else {
                return;
            };
            self.pair(there, back);
            // Each end names the PSN of the first request that it expects.
            for (index, psn) in [(there, starting_psn), (back, request.starting_psn)] {
                self.directions[index as usize].requests.begin_at(psn, request.mtu);
            }
        }
    }
}

/// Maximum number of directions tried for a response; the latest are tried.
const MAX_CANDIDATES: usize = 256;

/// Maximum number of connection requests kept until their reply.
const MAX_CM_REQUESTS: usize = 1024;
