//! Two agents, joined by a network in virtual time.
//!
//! The network carries datagrams of the connection manager as they are: without packets, endpoints and queue
//! pairs, which a `roce_simnet::World` would put between the agents.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use roce_fuzz_support::Script;
use roce_wire::management::{CmDatagram, CmMessage, CommunicationId, PortSpace, RejectReason};
use roce_wire::{Instant, Qpn};

use super::events::{Seen, SeenEvents};
use super::plan::{Act, Plan};
use crate::connection::State;
use crate::{
    AcceptParameters, Agent, AgentConfig, AgentUsage, Change, ConnectParameters,
    ConnectionAddresses, ConnectionRecord, DatagramAddresses, Disposition, Event, ListenParameters,
    RejectParameters, ResolveParameters, ServiceAnswer,
};

/// What happens to a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Pass,
    Drop,
    /// Delivered now, and again later.
    Duplicate,
    /// Delivered later.
    Delay,
}

impl Fate {
    pub(crate) const ALL: [Self; 4] = [Self::Pass, Self::Drop, Self::Duplicate, Self::Delay];
}

/// Datagrams at most that do not simply pass.
const MAX_FATES: usize = 24;
/// Datagrams at most that are dropped: with fewer than 15 no message and none of its repetitions, and
/// no answer to each of them, is lost for good. Ends that have lost all of them need not agree.
const MAX_DROPS: usize = 14;
const LATENCY: Duration = Duration::from_millis(1);
/// Shorter than the timewait, as the time of packets in a network is.
const DELAY: Duration = Duration::from_millis(1300);
/// Longer than all repetitions, with their times lengthened by an MRA.
const SETTLED: Duration = Duration::from_secs(4000);
const PORT: u16 = 7174;

/// An agent and its program.
#[derive(Debug)]
pub(crate) struct Side {
    pub(crate) agent: Agent,
    pub(crate) seen: SeenEvents,
    /// Connections and resolutions that the program has not destroyed.
    pub(crate) held: Vec<CommunicationId>,
    /// What is written down of the connections.
    records: BTreeMap<CommunicationId, ConnectionRecord>,
    /// What was written down when the process ended.
    orphans: Option<Vec<ConnectionRecord>>,
}

impl Side {
    /// Returns true if the process has ended.
    #[cfg(test)]
    pub(crate) fn has_died(&self) -> bool {
        self.orphans.is_some()
    }

    /// Writes the records of changed connections, and checks that they are those of all connections
    /// then.
    fn write_changes(&mut self) {
        while let Some(Change { id, record }) = self.agent.poll_change() {
            let record = record.map(|it| ConnectionRecord::from_bytes(&it.to_bytes()).unwrap());
            match record {
                Some(record) => self.records.insert(id, record),
                None => self.records.remove(&id),
            };
        }
        if self.orphans.is_none() {
            let all = self.agent.tables.connections.iter();
            let live = all.filter_map(|(id, it)| Some((*id, ConnectionRecord::of(*id, it)?)));
            assert!(live.eq(self.records.iter().map(|(id, record)| (*id, *record))));
        }
    }
}

/// Two agents and the network between them; side 0 is active.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) now: Instant,
    pub(crate) sides: [Side; 2],
    plan: Plan,
    fates: Vec<Fate>,
    /// Datagrams sent.
    pub(crate) sent: usize,
    /// Datagrams by time of arrival and number, with their receiver.
    in_flight: BTreeMap<(Instant, usize), (usize, Vec<u8>)>,
    /// Calls by time and number.
    calls: BTreeMap<(Instant, usize), (usize, CommunicationId, Act)>,
    planned: usize,
    /// Names of the messages sent, with their senders.
    pub(crate) log: Vec<(usize, &'static str)>,
}

pub(crate) fn address(side: usize) -> SocketAddr {
    let port = [40_000, PORT][side];
    SocketAddr::from(([10, 0, 0, side as u8 + 1], port))
}

fn addresses(side: usize) -> DatagramAddresses {
    DatagramAddresses { local: address(side).ip(), remote: address(1 - side).ip() }
}

pub(crate) fn qpn(side: usize) -> Qpn {
    Qpn::new(0x11 * (side as u32 + 1)).unwrap()
}

impl Pair {
    /// Creates two agents and starts the plan. The first datagrams meet `fates`, the rest passes.
    pub(crate) fn new(plan: Plan, fates: Vec<Fate>) -> Self {
        let sides = [0, 1].map(|side| {
            let guid = side as u64 + 1;
            let config = AgentConfig::new(guid, 100 + guid, vec![address(side).ip()]);
            Side {
                agent: Agent::new(AgentConfig { keeps_records: true, ..config }),
                seen: SeenEvents::default(),
                held: Vec::new(),
                records: BTreeMap::new(),
                orphans: None,
            }
        });
        let mut pair = Self {
            now: Instant::START,
            sides,
            plan,
            fates,
            sent: 0,
            in_flight: BTreeMap::new(),
            calls: BTreeMap::new(),
            planned: 0,
            log: Vec::new(),
        };
        for space in [PortSpace::TCP, PortSpace::UDP] {
            let address = "::".parse().unwrap();
            let listen = ListenParameters { space, port: PORT, address, backlog: 1 };
            pair.sides[1].agent.listen(&listen).unwrap();
        }
        let ends = ConnectionAddresses { local: address(0), remote: address(1) };
        let agent = &mut pair.sides[0].agent;
        let id = if pair.plan.is_resolution {
            let parameters =
                ResolveParameters { private_data: b"ask", ..ResolveParameters::new(ends) };
            agent.resolve(pair.now, &parameters).unwrap()
        } else {
            let parameters = ConnectParameters {
                private_data: b"hello",
                responder_resources: 3,
                initiator_depth: 5,
                ..ConnectParameters::new(ends, qpn(0))
            };
            agent.connect(pair.now, &parameters).unwrap()
        };
        pair.sides[0].held.push(id);
        pair.plan_calls(0, id, &pair.plan.on_start.clone());
        pair.transmit();
        pair
    }

    /// Runs until no message is repeated, and all timers are over.
    pub(crate) fn settle(&mut self) {
        let end = self.now + SETTLED;
        while let Some(next) = self.next_time()
            && next <= end
        {
            self.now = next;
            self.step();
        }
        self.now = end;
    }

    /// Checks that both ends agree, destroys what is left, and checks that nothing is.
    pub(crate) fn finish(&mut self) {
        self.settle();
        self.check_agreement();
        for side in 0..2 {
            for id in std::mem::take(&mut self.sides[side].held) {
                self.sides[side].agent.destroy(self.now, id).unwrap();
            }
        }
        self.transmit();
        self.settle();
        for (side, it) in self.sides.iter().enumerate() {
            let listeners = if it.orphans.is_some() { 0 } else { 2 * side };
            let expected = AgentUsage { listeners, ..AgentUsage::default() };
            assert_eq!(it.records, BTreeMap::new(), "side {side}: {:?}", self.log);
            assert_eq!(it.agent.usage(), expected, "side {side}: {:?}", self.log);
            assert_eq!(it.agent.poll_timeout(), None);
        }
    }

    fn state(&self, side: usize, id: CommunicationId) -> Option<State> {
        self.sides[side].agent.tables.connections.get(&id).map(|it| it.state)
    }

    /// Returns whether the side has an established connection.
    pub(crate) fn is_established(&self, side: usize) -> bool {
        let mut held = self.sides[side].held.iter();
        held.any(|id| self.state(side, *id) == Some(State::Established))
    }

    fn check_agreement(&self) {
        let [active, passive] = [0, 1].map(|side| self.is_established(side));
        assert_eq!(active, passive, "{:?} {:?}", self.log, self.plan);
        let requests = self.sides[1].seen.0.len();
        assert!(requests <= 1, "{requests} requests of one: {:?}", self.log);
        for side in 0..2 {
            for id in &self.sides[side].held {
                let state = self.state(side, *id);
                // Only the program is waited for.
                let is_waiting = matches!(
                    state,
                    Some(State::ReqSent | State::RepSent | State::DreqSent | State::Timewait)
                );
                assert!(!is_waiting, "side {side} is {state:?}: {:?}", self.log);
            }
        }
    }

    /// Does what is due next.
    #[cfg(test)]
    pub(crate) fn step_next(&mut self) {
        self.now = self.next_time().expect("something to do");
        self.step();
    }

    pub(crate) fn next_time(&self) -> Option<Instant> {
        let timers = self.sides.iter().filter_map(|it| it.agent.poll_timeout());
        let arrival = self.in_flight.keys().next().map(|(at, _)| *at);
        let call = self.calls.keys().next().map(|(at, _)| *at);
        timers.chain(arrival).chain(call).min()
    }

    fn step(&mut self) {
        while let Some(entry) = self.in_flight.first_entry()
            && entry.key().0 <= self.now
        {
            let (side, datagram) = entry.remove();
            self.deliver(side, &datagram);
        }
        while let Some(entry) = self.calls.first_entry()
            && entry.key().0 <= self.now
        {
            let (side, id, act) = entry.remove();
            self.call(side, id, act);
        }
        for side in 0..2 {
            let agent = &mut self.sides[side].agent;
            if agent.poll_timeout().is_some_and(|at| at <= self.now) {
                agent.handle_timeout(self.now);
            }
            while let Some(stray) = agent.poll_stray(self.now) {
                agent.answer_stray(stray.addresses, &stray.datagram[..]);
            }
            self.take_events(side);
        }
        self.transmit();
    }

    fn deliver(&mut self, side: usize, datagram: &[u8]) {
        let agent = &mut self.sides[side].agent;
        let disposition = agent.handle_datagram(self.now, addresses(side), datagram);
        if disposition == Disposition::Stray {
            agent.answer_stray(addresses(side), datagram);
        }
        self.take_events(side);
        self.transmit();
    }

    fn take_events(&mut self, side: usize) {
        while let Some(event) = self.sides[side].agent.poll_event() {
            let seen = self.sides[side].seen.add(&event);
            let id = event.id();
            let acts = match seen {
                Seen::ConnectRequest | Seen::ServiceRequest => {
                    self.sides[side].held.push(id);
                    self.plan.on_request.clone()
                }
                Seen::ConnectResponse => self.plan.on_response.clone(),
                Seen::Established => self.plan.on_established.clone(),
                Seen::Disconnected => self.plan.on_disconnected[side].clone(),
                _ => Vec::new(),
            };
            if let Event::ConnectRequest { request, .. } = &event {
                assert_eq!(request.private_data[..6], *b"hello\0");
                assert_eq!((request.responder_resources, request.initiator_depth), (5, 3));
                assert_eq!(request.addresses.remote, address(0));
            }
            assert!(self.sides[side].held.contains(&id), "{seen:?} after the end of {id}");
            self.plan_calls(side, id, &acts);
        }
    }

    fn plan_calls(&mut self, side: usize, id: CommunicationId, acts: &[(u64, Act)]) {
        for (pause, act) in acts {
            self.planned += 1;
            let at = self.now + Duration::from_millis(*pause);
            self.calls.insert((at, self.planned), (side, id, *act));
        }
    }

    /// Makes a call. The state may not allow it: then it has no effect.
    fn call(&mut self, side: usize, id: CommunicationId, act: Act) {
        if act == Act::Notify && !self.is_established(0) {
            // The peer's queue pair cannot have sent anything.
            return;
        }
        let Side { agent, held, orphans, .. } = &mut self.sides[side];
        let now = self.now;
        let result = match act {
            Act::Accept => agent.accept(now, id, &AcceptParameters::new(qpn(side))),
            Act::Establish => agent.establish(id, b"go"),
            Act::Reject(reason) => {
                let reason = RejectReason(reason);
                agent.reject(now, id, &RejectParameters { reason, private_data: b"no" })
            }
            Act::Disconnect => agent.disconnect(now, id),
            Act::Answer => agent.answer(now, id, &ServiceAnswer::new(qpn(side))),
            Act::Notify => agent.communication_established(id),
            Act::Destroy => {
                let result = agent.destroy(now, id);
                assert_eq!(result.is_ok(), held.contains(&id), "{result:?}");
                held.retain(|it| *it != id);
                result
            }
            #[cfg(test)]
            Act::Die => return self.die(side),
            #[cfg(test)]
            Act::EndOrphans => {
                orphans.iter().flatten().for_each(|record| agent.end_orphan(now, record));
                return self.transmit();
            }
        };
        if !held.contains(&id) && act != Act::Destroy {
            assert!(result.is_err(), "{act:?} of a destroyed connection");
        }
        self.take_events(side);
        self.transmit();
    }

    /// Ends the process of a side. A quarter of a second later another one ends its connections, and sends
    /// what is not answered twice more.
    #[cfg(test)]
    fn die(&mut self, side: usize) {
        let guid = side as u64 + 1;
        let config = AgentConfig::new(guid, 200 + guid, vec![address(side).ip()]);
        let it = &mut self.sides[side];
        it.agent = Agent::new(AgentConfig { id_prefix: 7, ..config });
        it.held.clear();
        it.orphans = Some(std::mem::take(&mut it.records).into_values().collect());
        let none = CommunicationId(0);
        self.calls.retain(|_, (of, ..)| *of != side);
        self.plan_calls(side, none, &[250, 500, 750].map(|pause| (pause, Act::EndOrphans)));
    }

    fn transmit(&mut self) {
        for side in 0..2 {
            self.sides[side].write_changes();
            while let Some(transmit) = self.sides[side].agent.poll_transmit() {
                assert_eq!(transmit.addresses, addresses(side));
                let message = CmDatagram::decode(&transmit.datagram[..]).unwrap().message;
                self.log.push((side, name(&message)));
                let fate = self.fates.get(self.sent).copied().unwrap_or(Fate::Pass);
                let number = 2 * self.sent;
                self.sent += 1;
                let (soon, late) = (self.now + LATENCY, self.now + LATENCY + DELAY);
                let mut arrive = |at, number| {
                    let datagram = transmit.datagram.to_vec();
                    self.in_flight.insert((at, number), (1 - side, datagram));
                };
                match fate {
                    Fate::Pass => arrive(soon, number),
                    Fate::Drop => {}
                    Fate::Delay => arrive(late, number),
                    Fate::Duplicate => {
                        arrive(soon, number);
                        arrive(late, number + 1);
                    }
                }
            }
        }
    }
}

fn name(message: &CmMessage) -> &'static str {
    message.attribute().name()
}

/// Runs two programs that do and meet what the bytes say.
pub(super) fn run(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    let plan = Plan::read(&mut script);
    let mut drops_left = MAX_DROPS;
    let fates = (0..MAX_FATES).map(|_| match script.pick(&Fate::ALL) {
        Fate::Drop if drops_left == 0 => Fate::Pass,
        Fate::Drop => {
            drops_left -= 1;
            Fate::Drop
        }
        fate => fate,
    });
    let fates = fates.collect();
    Pair::new(plan, fates).finish();
}
