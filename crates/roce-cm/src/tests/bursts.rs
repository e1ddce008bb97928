//! Bursts of requests to a peer whose receive ring has room for so many datagrams at a time.

use std::collections::BTreeMap;
use std::time::Duration;

use roce_wire::management::{CmDatagram, CmMessage, CommunicationId, PortSpace};
use roce_wire::{Instant, Qpn};

use crate::{
    AcceptParameters, Agent, AgentConfig, AgentUsage, ConnectParameters, ConnectionAddresses,
    DatagramAddresses, Event, ListenParameters, MAX_REQUESTS_IN_FLIGHT, REQUEST_FLIGHT_TIME,
    ResolveParameters, ServiceAnswer,
};

/// Datagrams that a receive ring holds.
const RING: usize = 135;
/// Time between rounds of a host, in which it empties its ring.
const ROUND: Duration = Duration::from_micros(100);
const BURST: usize = 1000;
/// Before a lost message is repeated.
const SOON: Duration = Duration::from_secs(1);
const SERVER: u8 = 2;

fn addresses(local: u8, remote: u8) -> DatagramAddresses {
    DatagramAddresses { local: [10, 0, 0, local].into(), remote: [10, 0, 0, remote].into() }
}

fn ends(remote: u8) -> ConnectionAddresses {
    ConnectionAddresses {
        local: ([10, 0, 0, 1], 40_000).into(),
        remote: ([10, 0, 0, remote], 7).into(),
    }
}

fn agent(host: u8) -> Agent {
    Agent::new(AgentConfig::new(host.into(), host.into(), vec![[10, 0, 0, host].into()]))
}

fn qpn(number: usize) -> Qpn {
    Qpn::new(number as u32 + 2).unwrap()
}

/// Asks the host `remote` for a connection, as the `number`th queue pair.
fn connect(agent: &mut Agent, now: Instant, remote: u8, number: usize) -> CommunicationId {
    agent.connect(now, &ConnectParameters::new(ends(remote), qpn(number))).unwrap()
}

/// A client and a server. What one sends in a round is in the ring of the other in the next.
struct Hosts {
    now: Instant,
    agents: [Agent; 2],
    rings: [Vec<[u8; 256]>; 2],
    /// Datagrams for which a ring had no room.
    lost: usize,
    /// Most datagrams of a round.
    most: usize,
    events: [BTreeMap<&'static str, usize>; 2],
}

impl Hosts {
    fn new() -> Self {
        let mut agents = [1, SERVER].map(agent);
        for space in [PortSpace::TCP, PortSpace::UDP] {
            let address = addresses(SERVER, 1).local;
            agents[1].listen(&ListenParameters { space, port: 7, address, backlog: 0 }).unwrap();
        }
        let (rings, events) = <_>::default();
        Self {
            now: Instant::START + Duration::from_secs(1),
            agents,
            rings,
            lost: 0,
            most: 0,
            events,
        }
    }

    /// Lets both hosts handle what has arrived, and send; `answer` is what their programs do.
    fn round(&mut self, answer: &mut dyn FnMut(&mut Agent, Instant, Event)) {
        self.now += ROUND;
        for host in 0..2 {
            let agent = &mut self.agents[host];
            let received_on = addresses(host as u8 + 1, 2 - host as u8);
            for datagram in std::mem::take(&mut self.rings[host]) {
                agent.handle_datagram(self.now, received_on, &datagram[..]);
            }
            agent.handle_timeout(self.now);
            while let Some(event) = agent.poll_event() {
                *self.events[host].entry(name(&event)).or_default() += 1;
                answer(agent, self.now, event);
            }
        }
        for host in 0..2 {
            let sent = std::iter::from_fn(|| self.agents[host].poll_transmit());
            let mut sent: Vec<_> = sent.map(|it| *it.datagram).collect();
            self.most = self.most.max(sent.len());
            self.lost += sent.len().saturating_sub(RING);
            sent.truncate(RING);
            self.rings[1 - host] = sent;
        }
    }

    /// Runs until the host's program was told of so many events of a kind.
    fn run_until(
        &mut self,
        host: usize,
        event: &'static str,
        count: usize,
        mut answer: impl FnMut(&mut Agent, Instant, Event),
    ) {
        let end = self.now + SOON;
        while self.events[host].get(event) != Some(&count) {
            assert!(
                self.now < end,
                "{:?} of {count} {event} after {SOON:?}, {} lost, {} at once",
                self.events[host].get(event),
                self.lost,
                self.most
            );
            self.round(&mut answer);
        }
    }
}

fn name(event: &Event) -> &'static str {
    match event {
        Event::ConnectRequest { .. } => "request",
        Event::ConnectResponse { .. } => "response",
        Event::Established { .. } => "established",
        Event::Disconnected { .. } => "disconnected",
        Event::ServiceRequest { .. } => "service request",
        Event::ServiceResponse { .. } => "service response",
        _ => "other",
    }
}

/// What programs do that accept everything, and confirm that the peer disconnects.
fn agree(agent: &mut Agent, now: Instant, event: Event) {
    let id = event.id();
    match event {
        Event::ConnectRequest { .. } => {
            agent.accept(now, id, &AcceptParameters::new(qpn(id.0 as usize & 0xffff))).unwrap();
        }
        Event::ConnectResponse { .. } => agent.establish(id, &[]).unwrap(),
        Event::ServiceRequest { .. } => {
            agent.answer(now, id, &ServiceAnswer::new(qpn(1))).unwrap();
        }
        // The end that began is in timewait.
        Event::Disconnected { .. } => drop(agent.disconnect(now, id)),
        _ => {}
    }
}

#[test]
fn a_thousand_connections_are_made_and_ended_at_once_without_a_loss() {
    let mut hosts = Hosts::new();
    let now = hosts.now;
    let client = &mut hosts.agents[0];
    let ids: Vec<_> = (0..BURST).map(|number| connect(client, now, SERVER, number)).collect();
    hosts.run_until(1, "established", BURST, agree);
    let now = hosts.now;
    for id in ids {
        hosts.agents[0].disconnect(now, id).unwrap();
    }
    hosts.run_until(0, "disconnected", BURST, agree);
    assert_eq!(hosts.events[1]["disconnected"], BURST);
    assert_eq!((hosts.lost, hosts.events[1]["request"]), (0, BURST));
    // As many REQs as may be in flight, and an RTU for each answered before.
    assert!(hosts.most <= 2 * MAX_REQUESTS_IN_FLIGHT, "{} at once", hosts.most);
    let counters = hosts.agents[0].counters();
    let beyond = 2 * (BURST - MAX_REQUESTS_IN_FLIGHT) as u64;
    assert_eq!((counters.resent, counters.held_back), (0, beyond));
    assert_eq!(hosts.agents[0].usage().requests_in_flight, 0);
}

#[test]
fn a_thousand_datagram_services_are_asked_for_at_once_without_a_loss() {
    let mut hosts = Hosts::new();
    let now = hosts.now;
    for _ in 0..BURST {
        hosts.agents[0].resolve(now, &ResolveParameters::new(ends(SERVER))).unwrap();
    }
    hosts.run_until(0, "service response", BURST, agree);
    assert_eq!(hosts.lost, 0);
    assert!(hosts.most <= MAX_REQUESTS_IN_FLIGHT, "{} at once", hosts.most);
}

#[test]
fn a_program_that_accepts_late_holds_requests_back_for_a_bounded_time() {
    let mut hosts = Hosts::new();
    let now = hosts.now;
    for number in 0..BURST {
        connect(&mut hosts.agents[0], now, SERVER, number);
    }
    // The server's program takes the requests and answers none.
    hosts.run_until(1, "request", BURST, |_, _, _| {});
    let flights = BURST.div_ceil(MAX_REQUESTS_IN_FLIGHT) as u32 - 1;
    let time = hosts.now - now;
    let due = flights * REQUEST_FLIGHT_TIME;
    assert!((due..due + flights * ROUND + 3 * ROUND).contains(&time), "{time:?}");
    assert_eq!(hosts.lost, 0);
}

/// Takes what an agent sends: the names of the messages and the hosts that they go to.
fn sent(agent: &mut Agent) -> Vec<(&'static str, std::net::IpAddr)> {
    let all = std::iter::from_fn(|| agent.poll_transmit());
    let named = all.map(|it| {
        let message: CmMessage = CmDatagram::decode(&it.datagram[..]).unwrap().message;
        (message.attribute().name(), it.addresses.remote)
    });
    named.collect()
}

const NOW: Instant = Instant::from_nanos(1_000_000_000);

/// An agent that has asked a host, which is silent, for so many connections, and has sent what it may.
fn asking(requests: usize) -> (Agent, Vec<CommunicationId>) {
    let mut agent = agent(1);
    let ids = (0..requests).map(|number| connect(&mut agent, NOW, SERVER, number)).collect();
    assert_eq!(sent(&mut agent).len(), MAX_REQUESTS_IN_FLIGHT.min(requests));
    (agent, ids)
}

#[test]
fn a_silent_peer_delays_no_request_to_another() {
    let (mut agent, _) = asking(200);
    connect(&mut agent, NOW, 3, 200);
    assert_eq!(sent(&mut agent), [("REQ", addresses(1, 3).remote)]);
}

#[test]
fn the_repetition_timer_of_a_request_starts_when_it_leaves() {
    let (mut agent, ids) = asking(MAX_REQUESTS_IN_FLIGHT + 1);
    let left = NOW + REQUEST_FLIGHT_TIME;
    assert_eq!(agent.poll_timeout(), Some(left));
    assert_eq!(agent.usage().timers, MAX_REQUESTS_IN_FLIGHT);
    agent.handle_timeout(left);
    assert_eq!((sent(&mut agent).len(), agent.usage().timers), (1, ids.len()));
    let interval = Duration::from_millis(6144);
    agent.handle_timeout(NOW + interval);
    assert_eq!(sent(&mut agent).len(), MAX_REQUESTS_IN_FLIGHT);
    agent.handle_timeout(left + interval - Duration::from_nanos(1));
    assert_eq!(sent(&mut agent), []);
    agent.handle_timeout(left + interval);
    assert_eq!(sent(&mut agent).len(), 1);
}

#[test]
fn repetitions_to_a_silent_peer_do_not_come_all_at_once_and_end() {
    let (mut agent, ids) = asking(BURST);
    let (mut most, mut requests, mut unreachable) = (0, MAX_REQUESTS_IN_FLIGHT, 0);
    let mut last = NOW;
    while let Some(next) = agent.poll_timeout() {
        agent.handle_timeout(next);
        let now = sent(&mut agent).iter().filter(|(name, _)| *name == "REQ").count();
        (most, requests, last) = (most.max(now), requests + now, next);
        while agent.poll_event().is_some_and(|it| matches!(it, Event::Unreachable { .. })) {
            unreachable += 1;
        }
    }
    assert_eq!((most, requests), (MAX_REQUESTS_IN_FLIGHT, 16 * BURST));
    assert_eq!((unreachable, agent.usage().requests_held_back), (BURST, 0));
    // Each is awaited as long as one alone, from when it leaves.
    assert!(last - NOW < Duration::from_secs(100), "{:?}", last - NOW);
    ids.into_iter().for_each(|id| agent.destroy(last, id).unwrap());
    assert_eq!(agent.usage(), AgentUsage::default());
}

#[test]
fn a_request_that_is_destroyed_before_it_leaves_is_never_sent() {
    let (mut agent, ids) = asking(MAX_REQUESTS_IN_FLIGHT + 2);
    let service = agent.resolve(NOW, &ResolveParameters::new(ends(SERVER))).unwrap();
    assert_eq!(agent.usage().requests_held_back, 3);
    for id in [service, ids[MAX_REQUESTS_IN_FLIGHT]] {
        agent.destroy(NOW, id).unwrap();
    }
    assert_eq!(sent(&mut agent), [], "the peer knows nothing of them");
    // One that has left is taken back, and makes room for the one that is left.
    agent.destroy(NOW, ids[0]).unwrap();
    let to = addresses(1, SERVER).remote;
    assert_eq!(sent(&mut agent), [("REJ", to), ("REQ", to)]);
    assert_eq!(agent.usage().requests_held_back, 0);
}
