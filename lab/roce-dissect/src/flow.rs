//! Connection tracking.
//!
//! Packets from one address to one queue pair form a *direction*; two directions form a
//! connection. Each direction keeps the state of its requests: the expected PSN, the outstanding
//! requests, the current message. This state is bounded, so memory grows with the number of
//! connections and not with their length.

mod cnp_rate;
mod connection;
mod direction;
mod ecn_use;
mod histogram;
mod pairing;
mod reaction;
mod requests;

use std::collections::HashMap;

use roce_wire::{Psn, Service};

pub use self::connection::{Connection, Connections, FlowEnd, RoundTrips};
pub use self::direction::DirectionCounts;
pub use self::reaction::Reaction;

use self::connection::Slot;
use self::direction::{Direction, Key};
use self::pairing::Pairing;
use self::requests::Requests;
use crate::flow_context::{FlowContext, FlowState};
use crate::tree::is_management;
use crate::{Finding, Options, RawFrame, Roce, Severity, Timestamp};

/// Connections of a capture.
#[derive(Debug)]
pub(crate) struct Flows {
    options: Options,
    index: HashMap<Key, u32>,
    /// Lookup cache for the directions of recent packets.
    recent: [Option<u32>; RECENT],
    directions: Vec<Direction>,
    connections: Vec<Slot>,
    pairing: Pairing,
}

impl Flows {
    pub(crate) fn new(options: Options) -> Self {
        Self {
            options,
            index: HashMap::new(),
            recent: [None; RECENT],
            directions: Vec::new(),
            connections: Vec::new(),
            pairing: Pairing::default(),
        }
    }

    /// Updates the connection of a packet and adds findings.
    ///
    /// Returns `None` for a packet without a complete BTH, and above [`Options::max_flows`].
    pub(crate) fn follow(
        &mut self,
        frame: &RawFrame<'_>,
        roce: &Roce<'_>,
        findings: &mut Vec<Finding>,
    ) -> Option<FlowContext> {
        let qp = roce.dest_qp()?;
        let key = Key { source: roce.source, destination: roce.destination, qp };
        let index = self.direction(key)?;
        // A packet that the receiver drops changes only the counts.
        let is_sound = findings.iter().all(|finding| finding.severity() < Severity::Problem);
        let headers = roce.headers.as_ref().filter(|_| is_sound);
        let is_response = headers.is_some_and(|headers| headers.bth.opcode.info().is_response());
        if is_response && self.directions[index as usize].partner.is_none() {
            self.find_partner(index, roce.psn()?, roce.source_port);
        }
        self.note_time(index, frame.time, findings);
        self.directions[index as usize].count(frame, roce, findings);
        let Some(headers) = headers else {
            let state = self.state(index, false);
            return Some(self.context(index, state));
        };
        let info = headers.bth.opcode.info();
        if info.service == Service::Cnp {
            self.handle_cnp(index, frame.time, findings);
            return Some(self.context(index, FlowState::default()));
        }
        if info.service == Service::Extension {
            self.handle_gap_report(index, frame.time, roce, headers.bth.psn);
            return Some(self.context(index, FlowState::default()));
        }
        let direction = &mut self.directions[index as usize];
        direction.service = Some(info.service);
        if direction.ecn_use.note(info, roce.ecn()) {
            //= also wire-ecn-mark
            findings.push(Finding::MarkWithoutEct);
        }
        if info.is_request() {
            let state = self.state(index, false);
            if is_management(roce) {
                self.learn(roce);
            }
            let direction = &mut self.directions[index as usize];
            direction.handle_request(frame, roce, headers, findings);
            if info.service == Service::Rc {
                self.list(index);
            }
            return Some(self.context(index, state));
        }
        direction.counts.becns += u64::from(headers.bth.becn);
        let state = self.state(index, true);
        self.handle_response(index, frame, roce, headers, findings);
        Some(self.context(index, state))
    }

    /// Notes a CNP for the sender of the opposite direction.
    fn handle_cnp(&mut self, index: u32, time: Timestamp, findings: &mut Vec<Finding>) {
        findings.push(Finding::CongestionNotified);
        let direction = &mut self.directions[index as usize];
        direction.counts.cnps += 1;
        let Some(partner) = direction.partner else { return };
        let partner = &mut self.directions[partner as usize];
        let lacks_mark = partner.counts.ecn_marks == 0 && partner.has_packets_before_cnp(time);
        let sender = partner.sender.get_or_insert_default();
        if lacks_mark && sender.is_first_without_mark() {
            let is_capable = partner.ecn_use.is_capable();
            findings.push(Finding::CnpWithoutMark { is_capable });
        }
        if let Some((cnps, time)) = sender.on_cnp(time) {
            findings.push(Finding::CnpRate { cnps, time });
        }
    }

    /// Notes a report of gaps in the packets of the opposite direction.
    fn handle_gap_report(&mut self, index: u32, time: Timestamp, roce: &Roce<'_>, psn: Psn) {
        let direction = &mut self.directions[index as usize];
        direction.counts.gap_reports += 1;
        if let (Some(partner), Some(report)) = (direction.partner, roce.gap_report()) {
            self.directions[partner as usize].requests.note_gap_report(psn, report, time);
        }
    }

    fn handle_response(
        &mut self,
        index: u32,
        frame: &RawFrame<'_>,
        roce: &Roce<'_>,
        headers: &roce_wire::Headers,
        findings: &mut Vec<Finding>,
    ) {
        if let Some(partner) = self.directions[index as usize].partner {
            let both = self.directions.get_disjoint_mut([index as usize, partner as usize]);
            if let Ok([direction, partner]) = both {
                let requests = &mut partner.requests;
                direction.handle_response(requests, frame, roce, headers, findings);
            }
            return;
        }
        // The requests are unknown: keep only findings about the response itself.
        let from = findings.len();
        let direction = &mut self.directions[index as usize];
        direction.handle_response(&mut Requests::default(), frame, roce, headers, findings);
        let holds = |finding: &Finding| {
            matches!(finding, Finding::Nak(_) | Finding::Rnr(_) | Finding::ReservedSyndrome(_))
        };
        let mut at = 0;
        findings.retain(|finding| {
            at += 1;
            at <= from || holds(finding)
        });
    }

    /// Returns the index of a direction, which is created if new; `None` above
    /// [`Options::max_flows`].
    fn direction(&mut self, key: Key) -> Option<u32> {
        let place = key.qp.get() as usize % RECENT;
        if let Some(index) = self.recent[place]
            && self.directions[index as usize].key == key
        {
            return Some(index);
        }
        let index = match self.index.get(&key) {
            Some(index) => *index,
            None if self.directions.len() < self.options.max_flows => self.add(key),
            None => return None,
        };
        self.recent[place] = Some(index);
        Some(index)
    }

    fn add(&mut self, key: Key) -> u32 {
        let index = self.directions.len() as u32;
        let connection = self.connections.len() as u32;
        self.directions.push(Direction::new(key, connection, true));
        self.connections.push(Slot { forward: Some(index), ..Slot::default() });
        self.index.insert(key, index);
        index
    }

    fn state(&self, index: u32, is_response: bool) -> FlowState {
        let direction = &self.directions[index as usize];
        let of = match (is_response, direction.partner) {
            (false, _) => direction,
            (true, Some(partner)) => &self.directions[partner as usize],
            (true, None) => return FlowState::default(),
        };
        let requests = &of.requests;
        let known = requests.is_known();
        FlowState {
            expected: requests.expected(),
            seen_ahead: requests.seen_ahead(),
            open: requests.open_opcode(),
            gap_reported: requests.gap_reported(),
            unacknowledged: known.then_some(requests.unacked),
            sent: known.then_some(requests.sent),
            mtu: requests.mtu,
        }
    }

    fn context(&self, index: u32, state: FlowState) -> FlowContext {
        let direction = &self.directions[index as usize];
        let partner = direction.partner.map(|partner| self.directions[partner as usize].key.qp);
        FlowContext {
            connection: direction.connection,
            forward: direction.forward,
            source_qp: partner.or(direction.source_qp),
            state,
        }
    }
}

const RECENT: usize = 256;
